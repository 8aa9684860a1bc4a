"""The work that was accepted and not begun, and how fast work of its kind has been done lately."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterable
from dataclasses import dataclass

from headway.core import Admitted, Event, Finished, Rejected, Request, StepRecord, Tier

MEMORY_S = 20.0
"""Backlogged seconds after which a measurement counts a third: rates follow the load, not single steps."""

_LEAST_S = 1e-3


@dataclass(slots=True)
class _Load:
    """What is left of a prompt to compute; its request waits until it was first admitted."""

    tenant: str
    weight: float
    tier: Tier
    num_prompt: int
    num_left: int
    num_choices: int = 1
    is_waiting: bool = True


@dataclass(slots=True)
class _Pace:
    """Prompt tokens finished and requests admitted while somebody of a class had to wait, older ones fading."""

    seconds: float = 0.0
    num_tokens: float = 0.0
    num_admitted: float = 0.0

    def add(self, seconds: float, num_tokens: int, num_admitted: int) -> None:
        """One more step."""
        fade = math.exp(-seconds / MEMORY_S)
        self.seconds = self.seconds * fade + seconds
        self.num_tokens = self.num_tokens * fade + num_tokens
        self.num_admitted = self.num_admitted * fade + num_admitted


@dataclass(frozen=True, slots=True, kw_only=True)
class Queued:
    """Requests that were never on the device, each counted once for every choice, and the tokens of their prompts."""

    num_requests: int
    num_tokens: int


class Backlog:
    """Prompts that are not computed yet, by class and tenant. Safe from any thread.

    A class is served after those before it where the policy knows tiers (`has_tiers`), a tenant by its weight where
    the policy is fair (`is_fair`); either way the rates are measured, prompt tokens per second of backlog, whatever
    held them up: budget, memory or places.
    """

    def __init__(self) -> None:
        self.has_tiers = self.is_fair = False
        self._lock = threading.Lock()
        self._loads: dict[str, _Load] = {}
        self._paces = {tier: _Pace() for tier in Tier}
        self._num_admitted: dict[Tier, int] = dict.fromkeys(Tier, 0)
        self._num_found: dict[Tier, int] = dict.fromkeys(Tier, 0)
        self._inside: set[str] = set()
        self._behind_since_s: float | None = None

    def add(self, request: Request) -> None:
        """A request was accepted."""
        num_prompt = request.num_prompt
        load = _Load(request.tenant, request.weight, request.tier, num_prompt, num_prompt, request.params.n)
        with self._lock:
            self._loads[request.id] = load
            self._inside.add(request.id)

    @property
    def num_inside(self) -> int:
        """Requests that were accepted and have not ended."""
        return len(self._inside)

    def queued(self, tenant: str | None = None) -> Queued:
        """What waits, of one tenant or of all."""
        with self._lock:
            waiting = [load for load in self._waiting() if tenant is None or load.tenant == tenant]
        return Queued(
            num_requests=sum(load.num_choices for load in waiting), num_tokens=sum(load.num_prompt for load in waiting)
        )

    def share(self, tenant: str, weight: float) -> float:
        """The part of the service that a tenant gets among those who wait, itself included; 1 without fairness."""
        if not self.is_fair:
            return 1.0
        with self._lock:
            weights = {load.tenant: load.weight for load in self._loads.values()} | {tenant: weight}
        return weight / sum(weights.values())

    def token_rate(self, tier: Tier) -> float | None:
        """Prompt tokens per second for a class and those before it; None until some were measured."""
        pace = self._paces[self._class_of(tier)]
        return pace.num_tokens / pace.seconds if pace.seconds > _LEAST_S and pace.num_tokens else None

    def request_rate(self, tier: Tier) -> float | None:
        """Requests per second that came out of the queue, in the same way."""
        pace = self._paces[self._class_of(tier)]
        return pace.num_admitted / pace.seconds if pace.seconds > _LEAST_S and pace.num_admitted else None

    def predicted_ttft_s(self, request: Request) -> float | None:
        """Seconds until the prompt of a request that comes now is computed; None without measurements.

        All that is before it over the rate of its class, and, where the policy is fair, no more than its tenant's own
        backlog takes at its share of that rate.
        """
        rate = self.token_rate(request.tier)
        if rate is None:
            return None
        before = self._num_left(request.tier) + request.num_prompt
        if not self.is_fair:
            return before / rate
        own = self._num_left(request.tier, request.tenant) + request.num_prompt
        return min(before, own / self.share(request.tenant, request.weight)) / rate

    def is_before(self, request: Request) -> bool:
        """Whether a request that comes now finds prompts to compute before its own: its tenant's, under fairness."""
        return self._num_left(request.tier, request.tenant if self.is_fair else None) > 0

    def on_events(self, events: Iterable[Event]) -> None:
        """Follow what happens; called in the engine's thread."""
        with self._lock:
            for event in events:
                match event:
                    case Admitted(request_id=name, num_cached=num_cached, is_first=True) if name in self._loads:
                        load = self._loads[name]
                        load.is_waiting = False
                        load.num_left -= num_cached
                        self._num_found[load.tier] += num_cached
                        self._num_admitted[load.tier] += 1
                    case StepRecord():
                        self._add_step(event)
                    case Finished(request=request) | Rejected(request=request):
                        self._loads.pop(request.id, None)
                        self._inside.discard(request.id)
                    case _:
                        pass

    def _add_step(self, record: StepRecord) -> None:
        """Time between steps counts where somebody waited through it."""
        seconds = record.end_s - (self._behind_since_s if self._behind_since_s is not None else record.start_s)
        waited = {load.tier for load in self._loads.values()}
        progress = self._progress(record)
        for tier in Tier:
            classes = [other for other in Tier if other <= tier or not self.has_tiers]
            if seconds > 0 and waited.intersection(classes):
                num_admitted = sum(self._num_admitted[other] for other in classes)
                self._paces[tier].add(seconds, sum(progress[other] for other in classes), num_admitted)
        self._num_admitted = dict.fromkeys(Tier, 0)
        self._behind_since_s = record.end_s if self._loads else None

    def _progress(self, record: StepRecord) -> dict[Tier, int]:
        """Prompt tokens that a step finished, and those it found in the cache, by class."""
        progress, self._num_found = self._num_found, dict.fromkeys(Tier, 0)
        for seq_id, num in record.grants.items():
            load = self._loads.get(seq_id)
            if load is not None and seq_id not in record.lost:  # of a batch that broke nothing is done
                progress[load.tier] += min(num, load.num_left)
                load.num_left -= num
                if load.num_left <= 0:
                    del self._loads[seq_id]
        return progress

    def _class_of(self, tier: Tier) -> Tier:
        return tier if self.has_tiers else Tier.FLEX

    def _waiting(self) -> list[_Load]:
        return [load for load in self._loads.values() if load.is_waiting]

    def _num_left(self, tier: Tier, tenant: str | None = None) -> int:
        last = self._class_of(tier)
        with self._lock:
            return sum(
                load.num_left
                for load in self._loads.values()
                if load.tier <= last and (tenant is None or load.tenant == tenant)
            )
