"""Whose turn it is: tenant fairness, then tier with bounded ageing, then priority, slack, arrival."""

from __future__ import annotations

import heapq
import math
from collections import defaultdict
from collections.abc import Callable, Iterable

from headway.core import Sequence
from headway.sched.parts.fairness import VirtualCounters

Rank = Callable[[Sequence], tuple[float, ...]]


def ranking(now_s: float, age_s: float) -> Rank:
    """A key, lowest first: the request's tier less one for each `age_s` waited, then priority, slack, arrival.

    Ageing bounds the wait: a request stands before every one that arrives (difference of tiers + 1) × `age_s` or
    more after it, whatever their priorities and deadlines. `age_s` 0 switches it off.
    """

    def rank(seq: Sequence) -> tuple[float, ...]:
        request = seq.request
        aged = math.floor((now_s - request.arrival_s) / age_s) if age_s > 0 else 0
        return float(request.tier - aged), float(request.priority), _slack(seq, now_s), request.arrival_s

    return rank


def by_arrival(seq: Sequence) -> tuple[float, ...]:
    """First come, first served."""
    return 0.0, 0.0, 0.0, seq.request.arrival_s


class Turns:
    """Waiting sequences in their order of admission: always the head of the least-served tenant's queue.

    Call `take` for the next one, then `charge` it if it was admitted: that moves its tenant back.
    """

    def __init__(self, waiting: Iterable[Sequence], rank: Rank, counters: VirtualCounters | None) -> None:
        queues: dict[str, list[Sequence]] = defaultdict(list)
        for seq in waiting:
            queues["" if counters is None else seq.request.tenant].append(seq)
        self._queues = {tenant: iter(sorted(queue, key=rank)) for tenant, queue in queues.items()}
        served = {tenant: 0.0 if counters is None else counters.of(tenant) for tenant in queues}
        # Ties go to the tenant that queued first, as ALGORITHMS §15 has it.
        self._heap = [(served[tenant], at, tenant) for at, tenant in enumerate(queues)]
        heapq.heapify(self._heap)
        self._current: tuple[float, int, str] | None = None

    def take(self) -> Sequence | None:
        """The next in turn; None when everyone had theirs."""
        if self._current is not None:
            heapq.heappush(self._heap, self._current)
            self._current = None
        while self._heap:
            entry = heapq.heappop(self._heap)
            seq = next(self._queues[entry[2]], None)
            if seq is not None:
                self._current = entry
                return seq
        return None

    def charge(self, num_tokens: float) -> None:
        """The one just taken was admitted: its tenant is served so many weighted tokens more."""
        assert self._current is not None, "nobody was taken"
        served, at, tenant = self._current
        self._current = (served + num_tokens, at, tenant)


def _slack(seq: Sequence, now_s: float) -> float:
    """Seconds until its deadline (its first token's, where only that was promised); infinite without one."""
    request = seq.request
    if request.deadline_s is not None:
        return request.deadline_s - now_s
    if request.ttft_s is not None and not seq.num_output:
        return request.arrival_s + request.ttft_s - now_s
    return math.inf
