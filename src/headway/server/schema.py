"""What clients may send: OpenAI's fields and vLLM's additions, types only. Bounds are `SamplingParams`'s business.

Types are strict: "3" and true are no integers, though 3.0 is one, as in JSON Schema. Unknown fields are accepted and
noted in the debug log, as vLLM does; known ones that are not supported are refused by `unsupported.py`.
"""

from __future__ import annotations

import logging
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, PlainValidator, ValidationError
from starlette.types import Scope

from headway.errors import InvalidRequest
from headway.server.fields import Prompt, logit_bias, prompt, stop_strings, whole
from headway.server.request_id import adopt, request_id
from headway.server.unsupported import refuse_unsupported

logger = logging.getLogger(__name__)

Whole = Annotated[int, BeforeValidator(whole)]
Stop = Annotated[tuple[str, ...], PlainValidator(stop_strings, json_schema_input_type=str | list[str] | None)]
Bias = Annotated[
    tuple[tuple[int, float], ...], PlainValidator(logit_bias, json_schema_input_type=dict[str, float] | None)
]
PromptField = Annotated[
    Prompt, PlainValidator(prompt, json_schema_input_type=str | list[str] | list[int] | list[list[int]])
]


class Body(BaseModel):
    """Every request body. `model` may be left out: then the default model serves it."""

    model_config = ConfigDict(strict=True, extra="allow", protected_namespaces=())

    model: str | None = None


class StreamOptions(BaseModel):
    """OpenAI's options of a stream, and vLLM's running count."""

    model_config = ConfigDict(strict=True, extra="allow")

    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None


class Generate(Body):
    """Fields that completions and chat share. None means the default."""

    stream: bool | None = None
    stream_options: StreamOptions | None = None
    n: Whole | None = None
    max_tokens: Whole | None = None
    temperature: float | None = None
    top_p: float | None = None
    stop: Stop = ()
    seed: Whole | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    logit_bias: Bias = ()
    top_k: Whole | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    min_tokens: Whole | None = None
    ignore_eos: bool | None = None
    stop_token_ids: list[int] | None = None
    allowed_token_ids: list[int] | None = None
    bad_words: list[str] | None = None
    include_stop_str_in_output: bool | None = None
    prompt_logprobs: Whole | None = None
    return_token_ids: bool | None = None
    priority: Whole | None = None
    cache_salt: str | None = None
    service_tier: str | None = None
    deadline_ms: float | None = None
    ttft_deadline_ms: float | None = None
    request_id: str | None = None


class CompletionRequest(Generate):
    """Body of `/v1/completions`."""

    prompt: PromptField
    echo: bool | None = None
    logprobs: Whole | None = None
    best_of: Whole | None = None


class ChatRequest(Generate):
    """Body of `/v1/chat/completions`. `messages` are read by `messages.py`."""

    messages: list[dict[str, Any]]
    logprobs: bool | None = None
    top_logprobs: Whole | None = None
    max_completion_tokens: Whole | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    chat_template_kwargs: dict[str, Any] | None = None


class TokenizeRequest(Body):
    """Body of `/tokenize`: a prompt or messages, as in vLLM."""

    prompt: str | None = None
    messages: list[dict[str, Any]] | None = None
    add_special_tokens: bool = True
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    return_token_strs: bool | None = None
    chat_template_kwargs: dict[str, Any] | None = None


class DetokenizeRequest(Body):
    """Body of `/detokenize`."""

    tokens: list[int]


BodyType = TypeVar("BodyType", bound=Body)


def parse(kind: type[BodyType], document: dict[str, Any], scope: Scope) -> BodyType:
    """The document of a request, which may name it. Raises `InvalidRequest` about the first field that is wrong."""
    adopt(scope, document.get("request_id"))
    try:
        body = kind.model_validate(document)
    except ValidationError as error:
        raise _first_mistake(error) from None
    extra = body.model_extra or {}
    refuse_unsupported(extra)
    if extra and logger.isEnabledFor(logging.DEBUG):
        fields = ", ".join(sorted(extra))[:500]
        logger.debug("request %s: fields that nobody reads: %s", request_id(scope), fields)
    return body


def _first_mistake(error: ValidationError) -> InvalidRequest:
    first = error.errors(include_url=False, include_context=False)[0]
    where = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in first["loc"]).removeprefix(".")
    if first["type"] == "missing":
        return InvalidRequest(f"{where} is missing; this endpoint needs it", param=where)
    message = first["msg"].removeprefix("Value error, ").replace("a valid dictionary", "an object")
    return InvalidRequest(f"{where}: {message[:1].lower()}{message[1:]}, not {_shown(first['input'])}", param=where)


def _shown(value: object) -> str:
    match value:
        case list():
            return f"a list of {len(value)}"
        case dict():
            return "an object"
        case None:
            return "null"
        case bool():
            return str(value).lower()
        case _:
            text = repr(value) if not isinstance(value, int) or abs(value) < 2**70 else "a huge number"
            return text if len(text) <= 80 else text[:80] + "…"
