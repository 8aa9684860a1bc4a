"""What a server refuses so that it keeps its promises to the others."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from headway.engine import AdmissionLimits, Guarding, GuardSettings
from headway.tune.lab import Sample
from headway.tune.slo import SloTable
from headway.tune.traffic import Traffic

_ROOM = 2.0
"""Multiples of the longest queue that the promises allow, or that was seen."""

_LEAST_QUEUE, _LEAST_LONG = 8, 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Guards:
    """Promises to watch, prompts that are long among this traffic, and how many may wait for how long."""

    watched: Mapping[str, float] = field(default_factory=dict)
    long_tokens: int = 2048
    max_queued_requests: int = 1024
    queue_timeout_ms: float = 0.0

    @classmethod
    def of(cls, slo: SloTable, traffic: Traffic, chosen: Sample) -> Guards:
        """Guards for a table and the run to be guarded: who must wait longer than promised is told so at once.

        The queue may be as long as Little's law allows, requests a second times the longest wait that keeps the
        promise, and as long as it was in the run that kept all promises; with room, as both are averages of chance.
        """
        wait_s = slo.limit_s("ttft", "queue_wait")
        rate = traffic.rate * chosen.factor
        allowed = rate * wait_s if wait_s and math.isfinite(rate) else 0.0
        most = max(_LEAST_QUEUE, math.ceil(_ROOM * max(allowed, chosen.longest_queue)))
        return cls(
            watched=slo.watched(),
            long_tokens=max(_LEAST_LONG, traffic.prompt_at(0.95)),
            max_queued_requests=most if wait_s else 1024,
            queue_timeout_ms=round(2 * _ROOM * wait_s * 1e3) if wait_s else 0.0,
        )

    def flags(self) -> dict[str, object]:
        """Keys of a config file."""
        return {
            "slo": [f"{key}={limit:g}" for key, limit in self.watched.items()],
            "guardrail_actions": "long,batch,slow",
            "guardrail_long_tokens": self.long_tokens,
            "max_queued_requests": self.max_queued_requests,
            "queue_timeout_ms": self.queue_timeout_ms,
        }

    def guarding(self) -> Guarding:
        """The same for an engine in this process."""
        return Guarding(
            limits=AdmissionLimits(
                max_queued_requests=self.max_queued_requests, queue_timeout_ms=self.queue_timeout_ms
            ),
            guards=GuardSettings(slo=self.watched, long_tokens=self.long_tokens),
        )

    def text(self) -> str:
        """One sentence for the report."""
        longest = f", each at most {self.queue_timeout_ms / 1e3:g} s" if self.queue_timeout_ms else ""
        return (
            f"{self.max_queued_requests:,} requests may wait{longest}; while a watched promise is broken, prompts of "
            f"more than {self.long_tokens:,} tokens are held back first"
        )
