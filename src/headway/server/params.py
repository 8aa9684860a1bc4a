"""From a request's fields to what the engine is told. Defaults live here; bounds live in `SamplingParams`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from headway.core import SamplingParams
from headway.errors import InvalidRequest
from headway.server.faults import Unsupported
from headway.server.patience import checked
from headway.server.schema import ChatRequest, CompletionRequest, Generate

MAX_SEQUENCES = 1024  # choices of all prompts of one call
MAX_STOP_TOKENS = 1024
MAX_BAD_WORDS = 256
MAX_PRIORITY = 2**31 - 1
MAX_SALT_CHARS = 1024
DEFAULT_MAX_TOKENS = 16
SERVICE_TIERS = ("auto", "default", "flex", "priority")


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What a client said about a request as a whole, the same for each of its prompts."""

    params: SamplingParams
    model: str | None = None
    priority: int = 0
    cache_salt: str = ""
    service_tier: str | None = None
    deadline_ms: float | None = None
    ttft_deadline_ms: float | None = None


def completion_terms(body: CompletionRequest) -> Terms:
    """Terms of a completion. `max_tokens` 0 with `echo` scores the prompt: see `is_scoring`."""
    n = 1 if body.n is None else body.n
    if body.best_of is not None and body.best_of != n:
        raise Unsupported(f"best_of is {body.best_of}; this server supports only best_of = n", param="best_of")
    if is_scoring(body) and body.stream:
        raise InvalidRequest("max_tokens 0 generates nothing to stream; leave stream out", param="max_tokens")
    fields = _common(body)
    max_tokens = DEFAULT_MAX_TOKENS if body.max_tokens is None else body.max_tokens
    fields["max_tokens"] = 1 if is_scoring(body) else max_tokens
    fields["logprobs"] = body.logprobs
    if body.echo and body.logprobs is not None and body.prompt_logprobs is None:
        fields["prompt_logprobs"] = body.logprobs
    terms = _terms(body, SamplingParams(**fields))
    if len(body.prompt) * n > MAX_SEQUENCES:
        raise InvalidRequest(
            f"{len(body.prompt)} prompts with n = {n} are {len(body.prompt) * n} choices; "
            f"one call may ask for at most {MAX_SEQUENCES}",
            param="n" if n > 1 else "prompt",
        )
    return terms


def is_scoring(body: CompletionRequest) -> bool:
    """Whether only the prompt is asked about: one token is computed and not shown."""
    return bool(body.echo) and body.max_tokens == 0


def chat_terms(body: ChatRequest) -> Terms:
    """Terms of a chat completion; without a limit it may use the rest of the context."""
    fields = _common(body)
    limit = "max_tokens" if body.max_completion_tokens is None else "max_completion_tokens"
    fields["max_tokens"] = getattr(body, limit)
    if body.top_logprobs is not None and not body.logprobs:
        raise InvalidRequest("top_logprobs needs logprobs: true", param="top_logprobs")
    if body.logprobs:
        fields["logprobs"] = body.top_logprobs or 0
    try:
        return _terms(body, SamplingParams(**fields))
    except InvalidRequest as error:
        # Clients look for the name that they wrote.
        name = {"max_tokens": limit, "logprobs": "top_logprobs"}.get(error.param or "", error.param)
        raise InvalidRequest(str(error).replace(str(error.param), str(name), 1), param=name) from None


def _terms(body: Generate, params: SamplingParams) -> Terms:
    priority, cache_salt = body.priority or 0, body.cache_salt or ""
    if not -MAX_PRIORITY <= priority <= MAX_PRIORITY:
        raise InvalidRequest(
            f"priority is {priority}; it must be between {-MAX_PRIORITY} and {MAX_PRIORITY}", param="priority"
        )
    if len(cache_salt) > MAX_SALT_CHARS:
        raise InvalidRequest(
            f"cache_salt has {len(cache_salt)} characters; at most {MAX_SALT_CHARS}", param="cache_salt"
        )
    if body.service_tier not in (None, *SERVICE_TIERS):
        raise InvalidRequest(
            f"service_tier is {body.service_tier[:80]!r}; it must be one of {', '.join(SERVICE_TIERS)}",
            param="service_tier",
        )
    return Terms(
        params=params,
        model=body.model,
        priority=priority,
        cache_salt=cache_salt,
        service_tier=body.service_tier,
        deadline_ms=checked("deadline_ms", body.deadline_ms),
        ttft_deadline_ms=checked("ttft_deadline_ms", body.ttft_deadline_ms),
    )


def _common(body: Generate) -> dict[str, Any]:
    if body.stream_options is not None and not body.stream:
        raise InvalidRequest("stream_options needs stream: true", param="stream_options")
    if body.prompt_logprobs is not None and body.stream:
        raise InvalidRequest("prompt_logprobs cannot be streamed; leave stream out", param="prompt_logprobs")
    _bounded("stop_token_ids", body.stop_token_ids, MAX_STOP_TOKENS)
    _bounded("bad_words", body.bad_words, MAX_BAD_WORDS)
    fields: dict[str, Any] = {
        name: value
        for name in _SAME_NAME
        if (value := getattr(body, name)) is not None  # absent and null mean the default
    }
    fields["stop"], fields["logit_bias"] = body.stop, body.logit_bias
    for name in ("stop_token_ids", "allowed_token_ids", "bad_words"):
        if (values := getattr(body, name)) is not None:
            fields[name] = tuple(values)
    return fields


_SAME_NAME = (
    "n",
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "seed",
    "presence_penalty",
    "frequency_penalty",
    "repetition_penalty",
    "min_tokens",
    "ignore_eos",
    "include_stop_str_in_output",
    "prompt_logprobs",
)


def _bounded(name: str, values: list[Any] | None, most: int) -> None:
    if values is not None and len(values) > most:
        raise InvalidRequest(f"{name} has {len(values)} entries; at most {most}", param=name)
