"""The JSON documents that we send. msgspec structs: a streamed token costs a microsecond or two, not fifty.

A member set to `UNSET` is left out; None is sent as null.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from headway.engine.outputs import Usage as Counts

DONE = b"data: [DONE]\n\n"
KEEP_ALIVE = b": keep-alive\n\n"


class PromptDetails(msgspec.Struct):
    """How much of the prompt came from the prefix cache."""

    cached_tokens: int


class Usage(msgspec.Struct):
    """OpenAI's token counts."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptDetails | UnsetType = UNSET


class TokenLogprob(msgspec.Struct):
    """One alternative in chat's logprobs. `bytes` are the token's own, even where `token` cannot show them."""

    token: str
    logprob: float
    bytes: list[int]


class ContentLogprob(TokenLogprob):
    """One output token in chat's logprobs."""

    top_logprobs: list[TokenLogprob]


class ChatLogprobs(msgspec.Struct):
    """Logprobs of a chat choice or chunk."""

    content: list[ContentLogprob]
    refusal: None = None


class CompletionLogprobs(msgspec.Struct):
    """Logprobs of a completion: parallel lists. The first token of an echoed prompt has null."""

    text_offset: list[int]
    token_logprobs: list[float | None]
    tokens: list[str]
    top_logprobs: list[dict[str, float] | None]


class CompletionChoice(msgspec.Struct):
    """One choice of a completion, whole or a chunk of it."""

    index: int
    text: str
    logprobs: CompletionLogprobs | None = None
    finish_reason: str | None = None
    stop_reason: str | int | UnsetType | None = UNSET
    token_ids: list[int] | UnsetType = UNSET
    prompt_token_ids: list[int] | UnsetType = UNSET
    prompt_logprobs: list[Any] | UnsetType = UNSET


class Completion(msgspec.Struct):
    """A completion or a chunk of one: OpenAI gives both the same shape."""

    id: str
    created: int
    model: str
    choices: list[CompletionChoice]
    object: str = "text_completion"
    usage: Usage | UnsetType | None = UNSET
    service_tier: str | UnsetType = UNSET


class Message(msgspec.Struct):
    """A whole answer of the assistant."""

    content: str
    role: str = "assistant"
    refusal: None = None


class MessageDelta(msgspec.Struct):
    """What a chunk adds to the assistant's answer."""

    role: str | UnsetType = UNSET
    content: str | UnsetType = UNSET


class ChatChoice(msgspec.Struct):
    """One choice of a chat completion."""

    index: int
    message: Message
    finish_reason: str
    logprobs: ChatLogprobs | None = None
    stop_reason: str | int | None = None
    token_ids: list[int] | UnsetType = UNSET


class ChatChunkChoice(msgspec.Struct):
    """A chunk of one choice of a chat completion."""

    index: int
    delta: MessageDelta
    logprobs: ChatLogprobs | None = None
    finish_reason: str | None = None
    stop_reason: str | int | UnsetType | None = UNSET
    token_ids: list[int] | UnsetType = UNSET


class ChatCompletion(msgspec.Struct):
    """A whole chat completion."""

    id: str
    created: int
    model: str
    choices: list[ChatChoice]
    usage: Usage
    object: str = "chat.completion"
    prompt_token_ids: list[int] | UnsetType = UNSET
    prompt_logprobs: list[Any] | UnsetType = UNSET
    service_tier: str | UnsetType = UNSET


class ChatChunk(msgspec.Struct):
    """One event of a streamed chat completion."""

    id: str
    created: int
    model: str
    choices: list[ChatChunkChoice]
    object: str = "chat.completion.chunk"
    usage: Usage | UnsetType | None = UNSET
    prompt_token_ids: list[int] | UnsetType = UNSET
    service_tier: str | UnsetType = UNSET


def usage_of(counts: Counts) -> Usage:
    """A finished request's counts in OpenAI's words."""
    return Usage(
        prompt_tokens=counts.num_prompt,
        completion_tokens=counts.num_output,
        total_tokens=counts.num_prompt + counts.num_output,
        prompt_tokens_details=PromptDetails(counts.num_cached),
    )


def event(document: msgspec.Struct) -> bytes:
    """One server-sent event."""
    return b"data: " + msgspec.json.encode(document) + b"\n\n"
