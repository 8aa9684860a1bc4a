"""How a client wants its tokens drawn. Frozen; checked at birth."""

from __future__ import annotations

import math
from dataclasses import dataclass

from headway.errors import InvalidRequest

MAX_STOP_STRINGS = 64
MAX_STOP_CHARS = 1024
MAX_LOGPROBS = 20
MAX_CHOICES = 128
MAX_LOGIT_BIAS = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParams:
    """Sampling of every choice of one request. Raises `InvalidRequest` naming the field when out of range.

    `temperature` 0 is greedy. `top_k` 0 or -1 keeps all tokens. `seed` None draws a fresh one per request.
    `logprobs` is the number of alternatives reported per output token (None: no logprobs at all), and
    `prompt_logprobs` the same for the prompt. `max_tokens` None means the rest of the context.
    `bad_words` and `stop` are texts; the engine turns the former into token sequences.
    """

    n: int = 1
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int | None = None
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    logit_bias: tuple[tuple[int, float], ...] = ()
    allowed_token_ids: tuple[int, ...] | None = None
    bad_words: tuple[str, ...] = ()
    bad_token_ids: tuple[tuple[int, ...], ...] = ()
    max_tokens: int | None = 16
    min_tokens: int = 0
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    include_stop_str_in_output: bool = False
    logprobs: int | None = None
    prompt_logprobs: int | None = None

    def __post_init__(self) -> None:
        """Check every bound on both sides."""
        _whole("n", self.n, 1, MAX_CHOICES)
        _between("temperature", self.temperature, 0.0, 2.0)
        _whole("top_k", self.top_k, -1, 2**31 - 1)
        _between("top_p", self.top_p, 0.0, 1.0)
        if self.top_p == 0.0:
            raise InvalidRequest("top_p is 0; it must be above 0 and at most 1", param="top_p")
        _between("min_p", self.min_p, 0.0, 1.0)
        _between("presence_penalty", self.presence_penalty, -2.0, 2.0)
        _between("frequency_penalty", self.frequency_penalty, -2.0, 2.0)
        _between("repetition_penalty", self.repetition_penalty, 0.01, 100.0)
        if self.seed is not None:
            _whole("seed", self.seed, -(2**63), 2**63 - 1)
        if self.max_tokens is not None:
            _whole("max_tokens", self.max_tokens, 1, 2**31 - 1)
        _whole("min_tokens", self.min_tokens, 0, 2**31 - 1)
        if self.max_tokens is not None and self.min_tokens > self.max_tokens:
            raise InvalidRequest(
                f"min_tokens is {self.min_tokens}, above max_tokens {self.max_tokens}", param="min_tokens"
            )
        for name in ("logprobs", "prompt_logprobs"):
            if (count := getattr(self, name)) is not None:
                _whole(name, count, 0, MAX_LOGPROBS)
        self._check_lists()

    def _check_lists(self) -> None:
        if len(self.stop) > MAX_STOP_STRINGS:
            raise InvalidRequest(f"stop has {len(self.stop)} strings; at most {MAX_STOP_STRINGS}", param="stop")
        if (longest := max(map(len, self.stop), default=0)) > MAX_STOP_CHARS:
            raise InvalidRequest(
                f"stop has a string of {longest} characters; each may have at most {MAX_STOP_CHARS}", param="stop"
            )
        if any(not text for text in self.stop):
            raise InvalidRequest("stop has an empty string; give at least one character", param="stop")
        if any(not word for word in self.bad_words):
            raise InvalidRequest("bad_words has an empty string; give at least one character", param="bad_words")
        if len(self.logit_bias) > MAX_LOGIT_BIAS:
            raise InvalidRequest(
                f"logit_bias has {len(self.logit_bias)} entries; at most {MAX_LOGIT_BIAS}", param="logit_bias"
            )
        for _, bias in self.logit_bias:
            _between("logit_bias", bias, -100.0, 100.0)
        if self.allowed_token_ids is not None and not self.allowed_token_ids:
            raise InvalidRequest("allowed_token_ids is empty; no token could be drawn", param="allowed_token_ids")

    @property
    def is_greedy(self) -> bool:
        """True when the likeliest token is always taken."""
        return self.temperature == 0.0


def _between(name: str, value: float, low: float, high: float) -> None:
    if not math.isfinite(value) or not low <= value <= high:
        raise InvalidRequest(f"{name} is {value}; it must be between {low:g} and {high:g}", param=name)


def _whole(name: str, value: int, low: int, high: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise InvalidRequest(f"{name} is {value}; it must be a whole number between {low} and {high}", param=name)
