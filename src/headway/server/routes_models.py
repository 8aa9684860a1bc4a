"""`/v1/models`, `/tokenize`, `/detokenize`: what is served, and its tokens."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request

from headway.errors import InvalidRequest, UnknownModel
from headway.server.access import caller_of
from headway.server.document import json_body
from headway.server.messages import plain_messages, template_variables
from headway.server.schema import DetokenizeRequest, TokenizeRequest
from headway.server.served import Served


def model_routes(served: Served) -> APIRouter:
    """`/v1/models`, bound to its engine."""
    router = APIRouter(tags=["models"])

    @router.get("/v1/models")
    async def list_models(request: Request) -> dict[str, Any]:
        """All names that the caller's requests may use."""
        names = served.models_of(caller_of(request.scope).tenant)
        return {"object": "list", "data": [_card(served, name) for name in names]}

    @router.get("/v1/models/{model:path}")
    async def show_model(model: str, request: Request) -> dict[str, Any]:
        """One model. Its `max_model_len` is what a request may really use."""
        names = served.models_of(caller_of(request.scope).tenant)
        if model not in names:
            raise UnknownModel(model[:200], names)
        return _card(served, model)

    return router


def token_routes(served: Served) -> APIRouter:
    """`/tokenize` and `/detokenize`, bound to their engine."""
    router = APIRouter(tags=["models"])

    @router.post("/tokenize", openapi_extra=json_body(TokenizeRequest))
    async def tokenize(request: Request) -> dict[str, Any]:
        """Token ids of a prompt or a conversation."""
        body = await served.read(request, TokenizeRequest)
        token_ids = await _token_ids(served, body)
        tokenizer = served.engine.tokenizer
        return {
            "count": len(token_ids),
            "max_model_len": served.engine.max_model_len,
            "tokens": token_ids,
            "token_strs": [tokenizer.token_text(token) for token in token_ids] if body.return_token_strs else None,
        }

    @router.post("/detokenize", openapi_extra=json_body(DetokenizeRequest))
    async def detokenize(request: Request) -> dict[str, Any]:
        """Text of token ids."""
        body = await served.read(request, DetokenizeRequest)
        tokenizer = served.engine.tokenizer
        most = tokenizer.vocab_size - 1
        if (bad := next((token for token in body.tokens if not 0 <= token <= most), None)) is not None:
            raise InvalidRequest(f"tokens has token id {bad}; this model's ids are 0 to {most}", param="tokens")
        return {"prompt": await served.texts.off_loop(lambda: tokenizer.decode(body.tokens), len(body.tokens))}

    return router


async def _token_ids(served: Served, body: TokenizeRequest) -> list[int]:
    if (body.prompt is None) == (body.messages is None):
        raise InvalidRequest("send either prompt or messages", param="prompt")
    if body.messages is not None:
        return await served.texts.encode_chat(plain_messages(body.messages), template_variables(body))
    text = body.prompt or ""
    served.texts.bound_texts([text], "prompt")
    encode = served.engine.encode if body.add_special_tokens else served.engine.tokenizer.encode_text
    return await served.texts.off_loop(lambda: encode(text), len(text))


def _card(served: Served, name: str) -> dict[str, Any]:
    return {
        "id": name,
        "object": "model",
        "created": served.created,
        "owned_by": "headway",
        "root": served.engine.model_name,
        "parent": None,
        "max_model_len": served.engine.max_model_len,
    }
