"""`/v1/completions`: text or token ids in, text out."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from headway.server.document import json_body
from headway.server.params import completion_terms
from headway.server.reply import Head, tier_shown, usage_mode
from headway.server.reply_completion import CompletionReply
from headway.server.request_id import request_id
from headway.server.schema import CompletionRequest
from headway.server.served import Served
from headway.server.stream import EventStream, answer_whole


def completion_routes(served: Served) -> APIRouter:
    """The route, bound to its engine."""
    router = APIRouter(tags=["generation"])

    @router.post("/v1/completions", openapi_extra=json_body(CompletionRequest), response_model=None)
    async def create_completion(request: Request) -> Response:
        """Continue one or several prompts."""
        served.require_welcome(request.scope)
        body = await served.read(request, CompletionRequest)
        terms = completion_terms(body)
        prompts = await served.texts.encode(body.prompt)
        job = served.desk.submit(request.scope, prompts, terms, "cmpl", "prompt")
        head = Head(
            id=f"cmpl-{request_id(request.scope)}",
            model=served.model(body.model),
            prompts=prompts,
            usage_mode=usage_mode(body),
            service_tier=tier_shown(body, job.tier),
        )
        reply = CompletionReply(body, head, job, served.engine.tokenizer, _texts(served, body))
        if body.stream:
            return EventStream(job, reply, served.config)
        return await answer_whole(request, job, lambda choices: reply.whole(choices, job.usage))

    return router


def _texts(served: Served, body: CompletionRequest) -> list[str]:
    if not body.echo:
        return []
    decode = served.engine.tokenizer.decode
    return [prompt if isinstance(prompt, str) else decode(prompt) for prompt in body.prompt]
