"""The door: what a caller asks for becomes a `Request` that this engine can surely serve, or is refused."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TypedDict

from headway.core import Request, SamplingParams, Tier
from headway.engine.limits import Limits
from headway.errors import InvalidRequest, PromptTooLong


@dataclass(frozen=True, slots=True, kw_only=True)
class Extras:
    """What a request may say beyond its prompt and sampling. Lower `priority` is served earlier.

    `timeout_s` is the time for the whole answer and `ttft_s` that for its first token, both from now on: at either
    the request ends with reason DEADLINE, or is refused where it cannot be met.
    """

    priority: int = 0
    cache_salt: str = ""
    tenant: str = ""
    weight: float = 1.0
    kv_guaranteed: float = 0.0
    kv_most: float = 1.0
    tier: Tier = Tier.DEFAULT
    timeout_s: float | None = None
    ttft_s: float | None = None
    traceparent: str = ""


class ExtraWords(TypedDict, total=False):
    """The fields of `Extras` as keyword arguments."""

    priority: int
    cache_salt: str
    tenant: str
    weight: float
    kv_guaranteed: float
    kv_most: float
    tier: Tier
    timeout_s: float | None
    ttft_s: float | None
    traceparent: str


class Door:
    """Checks requests against the model and the limits. Everything that passes can be finished."""

    def __init__(
        self, limits: Limits, *, vocab_size: int, eos_ids: frozenset[int], encode: Callable[[str], list[int]], seed: int
    ) -> None:
        self.limits = limits
        self._vocab_size = vocab_size
        self._eos_ids = eos_ids
        self._encode = encode
        self._seeds = random.Random(seed)

    def request(
        self, request_id: str, prompt_ids: Sequence[int], params: SamplingParams, arrival_s: float, extras: Extras
    ) -> Request:
        """The request, with its output bounded by the context and its seed drawn where none was given.

        Raises `InvalidRequest` naming the field, `PromptTooLong` with both numbers.
        """
        if not prompt_ids:
            raise InvalidRequest("the prompt is empty; it needs at least one token", param="prompt")
        self._check_ids("prompt", prompt_ids)
        self._check_ids("logit_bias", (token_id for token_id, _ in params.logit_bias))
        self._check_ids("allowed_token_ids", params.allowed_token_ids or ())
        self._check_ids("stop_token_ids", params.stop_token_ids)
        most = self.limits.max_num_seqs
        if most is not None and params.n > most:
            raise InvalidRequest(f"n is {params.n}, but at most {most} sequences run at once", param="n")
        return Request(
            id=request_id,
            prompt_ids=tuple(prompt_ids),
            max_output=self._max_output(len(prompt_ids), params, self._share(extras.kv_most, params.n)),
            arrival_s=arrival_s,
            params=self._completed(params),
            eos_ids=self._eos_ids,
            priority=extras.priority,
            cache_salt=extras.cache_salt,
            tenant=extras.tenant,
            weight=extras.weight,
            kv_guaranteed=extras.kv_guaranteed,
            kv_most=extras.kv_most,
            tier=extras.tier,
            deadline_s=None if extras.timeout_s is None else arrival_s + extras.timeout_s,
            ttft_s=extras.ttft_s,
            traceparent=extras.traceparent,
        )

    def _share(self, kv_most: float, n: int) -> int:
        """Tokens that each of `n` sequences may have within a share of all blocks."""
        if kv_most >= 1.0:
            return self.limits.max_model_len
        return int(kv_most * self.limits.num_blocks) // n * self.limits.block_size

    def _max_output(self, num_prompt: int, params: SamplingParams, share: int) -> int:
        wanted = params.max_tokens
        if share < num_prompt + max(1, wanted or 1) <= self.limits.max_model_len:
            each = f" for each of {params.n} choices" if params.n > 1 else ""
            raise InvalidRequest(
                f"prompt and output need {num_prompt + max(1, wanted or 1)} tokens of cache{each}, "
                f"but this tenant's share (kv_most) holds {share}",
                param="max_tokens" if num_prompt < share else "prompt",
            )
        limit = min(self.limits.max_model_len, max(share, num_prompt + 1))
        if num_prompt + max(1, wanted or 1) > limit:
            raise PromptTooLong(num_prompt, wanted or 1, limit, param="max_tokens" if num_prompt < limit else "prompt")
        room = limit - num_prompt
        if params.min_tokens > (wanted or room):
            raise InvalidRequest(
                f"min_tokens is {params.min_tokens}, but only {room} tokens fit after the prompt", param="min_tokens"
            )
        return wanted or room

    def _completed(self, params: SamplingParams) -> SamplingParams:
        """Bad words as token sequences, with and without a leading space; a seed where chance is wanted."""
        if params.bad_words:
            spellings = [form for word in params.bad_words for form in (word, f" {word.lstrip()}")]
            # Of white space alone only the word itself: who forbids a new line did not mean spaces.
            meant = [form for form in spellings if form.strip() or form in params.bad_words]
            sequences = dict.fromkeys(tuple(self._encode(text)) for text in meant)
            params = replace(params, bad_token_ids=(*params.bad_token_ids, *sequences))
        if params.seed is None and not params.is_greedy:
            params = replace(params, seed=self._seeds.getrandbits(63))
        return params

    def _check_ids(self, name: str, ids: Iterable[int]) -> None:
        for token_id in ids:
            if not 0 <= token_id < self._vocab_size:
                raise InvalidRequest(
                    f"{name} has token id {token_id}; this model's ids are 0 to {self._vocab_size - 1}", param=name
                )
