"""Whether a small tenant feels a big one: its requests alone, and beside a flood, on one server."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from headway.errors import BadSetting
from headway.report import Outcome, RequestRecord, RunRecord, summarize
from headway.workload import WorkItem

SMALL, BIG = "small", "big"
GRACE_S = 60.0
"""How long a small request may be answered behind the end of the load; its wait counts as that long where it is not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IsolationLoad:
    """A small tenant at `rate` requests per second, and a big one that asks for `factor` times its tokens."""

    duration_s: float = 120.0
    rate: float = 1.0
    num_prompt: int = 128
    num_output: int = 32
    factor: float = 20.0
    big_prompt: int = 2000
    big_output: int = 32
    seed: int = 0

    def __post_init__(self) -> None:
        """Check the bounds. Raises `BadSetting`."""
        for name in ("duration_s", "rate", "num_prompt", "num_output", "factor", "big_prompt", "big_output"):
            if not 0 < getattr(self, name) < 1e6:
                raise BadSetting(f"{name} is {getattr(self, name)}; it must be above 0 and below a million")

    @property
    def big_rate(self) -> float:
        """Requests per second of the big tenant."""
        small = self.rate * (self.num_prompt + self.num_output)
        return self.factor * small / (self.big_prompt + self.big_output)

    @property
    def tokens_per_s(self) -> float:
        """What both ask for together."""
        return self.rate * (self.num_prompt + self.num_output) * (1.0 + self.factor)

    def items(self, tenants: Sequence[str]) -> list[WorkItem]:
        """The requests of some of the two, Poisson, in order; a tenant's are the same whoever else is there."""
        items = []
        if SMALL in tenants:
            items += self._stream(SMALL, self.rate, self.num_prompt, self.num_output, GRACE_S)
        if BIG in tenants:
            items += self._stream(BIG, self.big_rate, self.big_prompt, self.big_output, 0.0)
        return sorted(items, key=lambda item: item.at_s or 0.0)

    def _stream(self, tenant: str, rate: float, num_prompt: int, num_output: int, grace_s: float) -> list[WorkItem]:
        chance = random.Random(f"{self.seed} {tenant}")
        items: list[WorkItem] = []
        at_s = chance.expovariate(rate)
        while at_s < self.duration_s:
            items.append(
                WorkItem(
                    id=f"{tenant}-{len(items)}",
                    num_prompt=num_prompt,
                    num_output=num_output,
                    max_output=num_output,
                    at_s=at_s,
                    tenant=tenant,
                    cancel_s=self.duration_s - at_s + grace_s,
                    seed=chance.randrange(1 << 31),
                )
            )
            at_s += chance.expovariate(rate)
        return items


@dataclass(frozen=True, slots=True, kw_only=True)
class Felt:
    """What the small tenant felt, seconds, and what the server did meanwhile, tokens per second."""

    ttft_p50_s: float
    ttft_p99_s: float
    num_requests: int
    num_unanswered: int
    served_tokens_per_s: float


def felt(run: RunRecord, duration_s: float) -> Felt:
    """The small tenant's first tokens in a run. A request without one waited until its client left, at least."""
    own = [record for record in run.requests if record.tenant == SMALL]
    waits = [record.ttft_s if record.ttft_s is not None else _waited_s(record) for record in own]
    figures = summarize(waits, (50, 99))
    served = sum(
        record.num_prompt + record.num_output
        for record in run.requests
        if record.first_s is not None and record.first_s <= duration_s
    )
    return Felt(
        ttft_p50_s=figures.at(50),
        ttft_p99_s=figures.at(99),
        num_requests=len(own),
        num_unanswered=sum(record.outcome is not Outcome.OK for record in own),
        served_tokens_per_s=served / duration_s,
    )


def _waited_s(record: RequestRecord) -> float:
    return max(0.0, record.end_s - record.intended_s)
