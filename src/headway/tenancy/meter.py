"""One set of limits at work: what runs, and two buckets."""

from __future__ import annotations

import math
from dataclasses import dataclass

from headway.tenancy.bucket import Bucket
from headway.tenancy.tenant import Limits

_COLD_S = 1.0
"""How long a request is taken to last before one has ended."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Which limit stands in the way, in words, and the seconds until it does no more."""

    limit: str
    what: str
    retry_after_s: float


@dataclass(frozen=True, slots=True)
class Rate:
    """How a caller stands with a rate of `requests` or `tokens`: at most, now, and the seconds until all is back."""

    kind: str
    most: int
    num_left: int
    reset_s: float


class Meter:
    """Counts requests against `Limits`. Ask `refusal`, then `charge`; each charge ends in `settle` or `give_back`."""

    def __init__(self, limits: Limits, now_s: float) -> None:
        self.num_running = 0
        self._limits = limits
        self._duration_s = _COLD_S
        self._requests = _bucket(limits.requests_per_minute, limits.most_requests, now_s)
        self._tokens = _bucket(limits.tokens_per_minute, limits.most_tokens, now_s)

    def refusal(self, num_requests: int, num_tokens: int, now_s: float) -> Refusal | None:
        """Why so much may not start now, None where it may. Charges nothing."""
        limits, found = self._limits, []
        if limits.max_concurrent is not None and self.num_running + num_requests > limits.max_concurrent:
            what = f"{self.num_running} of at most {limits.max_concurrent} requests are running"
            found.append(Refusal("concurrency", what, self._duration_s / limits.max_concurrent))
        if self._requests is not None and (wait_s := self._requests.wait_s(num_requests, now_s)):
            what = f"{limits.requests_per_minute:g} requests per minute, {limits.most_requests} at once, are used up"
            found.append(Refusal("requests", what, wait_s))
        if self._tokens is not None and (wait_s := self._tokens.wait_s(num_tokens, now_s)):
            what = f"{limits.tokens_per_minute:g} tokens per minute, {limits.most_tokens} at once, are used up"
            found.append(Refusal("tokens", what, wait_s))
        return max(found, key=lambda refusal: refusal.retry_after_s, default=None)

    def rates(self, now_s: float) -> list[Rate]:
        """What is left of each rate that is limited."""
        limits = self._limits
        buckets = (
            ("requests", limits.most_requests, self._requests),
            ("tokens", limits.most_tokens, self._tokens),
        )
        return [
            Rate(kind, most, max(0, math.floor(bucket.level(now_s) + 1e-9 * most)), bucket.full_in_s(now_s))
            for kind, most, bucket in buckets
            if bucket is not None and most is not None
        ]

    def charge(self, num_tokens: int) -> None:
        """One request starts that may use so many tokens."""
        self.num_running += 1
        self._take(1, num_tokens)

    def settle(self, num_tokens: int, num_used: int, took_s: float) -> None:
        """A request ended that was charged `num_tokens` and used `num_used`."""
        self.num_running -= 1
        assert self.num_running >= 0, "more requests ended than began"
        self._duration_s += 0.2 * (took_s - self._duration_s)
        self._take(0, num_used - num_tokens)

    def give_back(self, num_tokens: int) -> None:
        """A request that was charged came to nothing: as if it had not been."""
        self.num_running -= 1
        assert self.num_running >= 0, "more requests ended than began"
        self._take(-1, -num_tokens)

    def resize(self, limits: Limits, now_s: float) -> None:
        """Go on under other limits; what runs and what was used stays counted."""
        self._requests = _resized(self._requests, limits.requests_per_minute, limits.most_requests, now_s)
        self._tokens = _resized(self._tokens, limits.tokens_per_minute, limits.most_tokens, now_s)
        self._limits = limits

    def _take(self, num_requests: int, num_tokens: int) -> None:
        if self._requests is not None:
            self._requests.take(num_requests)
        if self._tokens is not None:
            self._tokens.take(num_tokens)


def _bucket(per_minute: float | None, burst: int | None, now_s: float) -> Bucket | None:
    return None if per_minute is None or burst is None else Bucket(per_minute, burst, now_s)


def _resized(bucket: Bucket | None, per_minute: float | None, burst: int | None, now_s: float) -> Bucket | None:
    if bucket is None or per_minute is None or burst is None:
        return _bucket(per_minute, burst, now_s)
    bucket.resize(per_minute, burst, now_s)
    return bucket
