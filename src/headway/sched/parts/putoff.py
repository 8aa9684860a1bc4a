"""Whom to let wait when prompts queue up, so that all others start in time."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Protocol

from headway.core import Arrived, Event, Finished, Rejected, Sequence

AFTER_S = 3.0
"""Seconds of prefill in the queue from which on somebody is put off, on a fast machine."""

AFTER_FIXED = 400.0
"""The same on any machine, in fixed costs of a step: a queue that is long for one is short for a slower one."""

FIRST_CREDIT = 2.0
"""How many may be put off before anybody has earned it: an overload may come with the first requests."""

MOST_CREDIT = 10.0
"""How many may be put off at once after a long time in which nobody was."""

NUM_AGES = 12
"""Put off for so many times `age_s` at most."""


Pending = Callable[[Sequence], int]


class Prices(Protocol):
    """What time costs."""

    @property
    def fixed_s(self) -> float:
        """Seconds that any step costs; 0 where that is unknown."""

    def price_s(self, seq: Sequence, num_pending: int) -> float:
        """Seconds that the last tokens of a sequence's prefill will add to steps; 0 where that is unknown."""


class PutOff:
    """Whose prompts take longest of an overloaded queue, at most `share` of all requests and `FIRST_CREDIT` more.

    In an overload somebody waits, whatever the order. Taking turns by arrival, everybody does; here it is the few of
    whose prompts most is left to compute, beyond what the prefix cache holds, since each of them makes room for many
    others (as eager relegation in QoServe, but by size, and for a bounded time). Each arrival earns `share` of a
    request to be put off. Nobody is put off in favour of another tenant or of a lower class, nor who was promised a
    time.
    """

    def __init__(self, share: float, age_s: float) -> None:
        self._share = share
        self._most_s = NUM_AGES * age_s or float("inf")
        self._credit = FIRST_CREDIT
        self._chosen: set[str] = set()

    def adopt(self, other: PutOff) -> None:
        """Go on with what was earned and chosen under other settings."""
        self._credit, self._chosen = other._credit, set(other._chosen)

    def on_event(self, event: Event) -> None:
        """Earn with arrivals; forget those who have left."""
        match event:
            case Arrived():
                self._credit = min(MOST_CREDIT, self._credit + self._share)
            case Finished(request=request) | Rejected(request=request):
                self._chosen.discard(request.id)
            case _:
                pass

    def choose(
        self, prompts: Collection[Sequence], prices: Prices, num_pending: Pending, now_s: float
    ) -> frozenset[str]:
        """Ids of the requests that are put off in this step; `num_pending` tells what the cache does not hold."""
        is_idle = self._credit < 1.0 and not self._chosen
        if not self._share or is_idle or len({seq.request.tenant for seq in prompts}) != 1:
            return frozenset()
        lowest = max(map(_class_of, prompts))
        if self._credit >= 1.0:
            others = [seq for seq in prompts if seq.request.id not in self._chosen]
            self._choose_more(others, lowest, prices, num_pending, now_s)
        if not self._chosen:
            return frozenset()
        return frozenset(
            seq.request.id
            for seq in prompts
            if seq.request.id in self._chosen and _class_of(seq) == lowest and self._may_wait(seq, now_s)
        )

    def _choose_more(
        self, prompts: list[Sequence], lowest: tuple[int, int], prices: Prices, num_pending: Pending, now_s: float
    ) -> None:
        after_s = max(AFTER_S, AFTER_FIXED * prices.fixed_s)
        if sum(prices.price_s(seq, seq.num_pending) for seq in prompts) <= after_s:
            return  # whatever the cache holds of them: that is dearer to ask
        costs = [prices.price_s(seq, num_pending(seq)) for seq in prompts]
        left_s = sum(costs)
        queue = zip(costs, prompts, strict=True)
        for cost, seq in sorted(queue, key=lambda entry: (-entry[0], -entry[1].request.arrival_s)):
            if left_s <= after_s or self._credit < 1.0:
                return
            if _class_of(seq) == lowest and self._may_wait(seq, now_s):
                self._chosen.add(seq.request.id)
                self._credit -= 1.0
                left_s -= cost

    def _may_wait(self, seq: Sequence, now_s: float) -> bool:
        """Whether nobody promised it a time, and it has not waited for too long."""
        request = seq.request
        is_promised = request.deadline_s is not None or request.ttft_s is not None or seq.num_output > 0
        return not is_promised and now_s - request.arrival_s < self._most_s


def _class_of(seq: Sequence) -> tuple[int, int]:
    return seq.request.tier, seq.request.priority
