"""`/v1/chat/completions`: a conversation in, the assistant's next message out."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from headway.server.document import json_body
from headway.server.messages import plain_messages, template_variables
from headway.server.params import chat_terms
from headway.server.reply import Head, tier_shown, usage_mode
from headway.server.reply_chat import ChatReply
from headway.server.request_id import request_id
from headway.server.schema import ChatRequest
from headway.server.served import Served
from headway.server.stream import EventStream, answer_whole


def chat_routes(served: Served) -> APIRouter:
    """The route, bound to its engine."""
    router = APIRouter(tags=["generation"])

    @router.post("/v1/chat/completions", openapi_extra=json_body(ChatRequest), response_model=None)
    async def create_chat_completion(request: Request) -> Response:
        """Answer a conversation."""
        served.require_welcome(request.scope)
        body = await served.read(request, ChatRequest)
        terms = chat_terms(body)
        messages = plain_messages(body.messages)
        prompt_ids = await served.texts.encode_chat(messages, template_variables(body))
        job = served.desk.submit(request.scope, [prompt_ids], terms, "chat", "messages")
        head = Head(
            id=f"chatcmpl-{request_id(request.scope)}",
            model=served.model(body.model),
            prompts=[prompt_ids],
            usage_mode=usage_mode(body),
            service_tier=tier_shown(body, job.tier),
        )
        reply = ChatReply(body, head, job, served.engine.tokenizer)
        if body.stream:
            return EventStream(job, reply, served.config)
        return await answer_whole(request, job, lambda choices: reply.whole(choices, job.usage))

    return router
