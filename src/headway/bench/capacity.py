"""The highest rate that a target serves well: bisection over runs."""

from __future__ import annotations

import asyncio
import statistics
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from headway.errors import BadSetting

Attain = Callable[[float, int], Awaitable[float]]
"""Share of requests within their SLO at a rate (requests per second), in one repeat. One cancelled raises as usual."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """`goal` is the share that must meet its SLO. The search starts at `start_rate` and ends where the best rate that
    passed and the least that failed differ by less than `tolerance` (0.05: 5 %). Each rate is run `repeats` times, the
    median counts. `max_rate` bounds it from above.
    """

    goal: float = 0.9
    start_rate: float = 1.0
    max_rate: float = 1e4
    tolerance: float = 0.05
    repeats: int = 3
    max_rates: int = 20

    def __post_init__(self) -> None:
        """Refuse what cannot be searched for."""
        if not 0 < self.goal <= 1:
            raise BadSetting(f"the attainment to reach is {self.goal}; it must be above 0 and at most 1")
        if not 0 < self.start_rate <= self.max_rate:
            raise BadSetting(f"the first rate is {self.start_rate}; it must be above 0 and at most {self.max_rate:g}")
        if not 0.001 <= self.tolerance <= 1:
            raise BadSetting(f"the tolerance is {self.tolerance}; it must be between 0.001 and 1")
        if self.repeats < 1:
            raise BadSetting(f"repeats is {self.repeats}; it must be at least 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """What one rate came to."""

    rate: float
    attainments: tuple[float, ...]
    passed: bool

    @property
    def attainment(self) -> float:
        """The median over the repeats."""
        return statistics.median(self.attainments)


@dataclass(slots=True)
class Capacity:
    """The evidence. `rate` 0: not even the lowest rate tried passed; `failed_rate` None: none failed."""

    trials: list[Trial] = field(default_factory=list)
    is_complete: bool = False

    @property
    def rate(self) -> float:
        """The highest rate below which nothing failed."""
        passed = [trial.rate for trial in self.trials if trial.passed and trial.rate < self._least_failed]
        return max(passed, default=0.0)

    @property
    def failed_rate(self) -> float | None:
        """The least rate that failed."""
        return None if self._least_failed == float("inf") else self._least_failed

    @property
    def _least_failed(self) -> float:
        return min((trial.rate for trial in self.trials if not trial.passed), default=float("inf"))


async def find_capacity(attain: Attain, search: Search, on_trial: Callable[[Trial], None] | None = None) -> Capacity:
    """Search: double while it passes, halve while nothing passes, then bisect. A cancelled search keeps its trials."""
    found = Capacity()
    try:
        while (rate := _next_rate(found, search)) is not None:
            shares = [await attain(rate, repeat) for repeat in range(search.repeats)]
            trial = Trial(rate=rate, attainments=tuple(shares), passed=statistics.median(shares) >= search.goal)
            found.trials.append(trial)
            if on_trial is not None:
                on_trial(trial)
    except asyncio.CancelledError:
        return found
    found.is_complete = True
    return found


def _next_rate(found: Capacity, search: Search) -> float | None:
    """The next rate worth a run; None where the answer is close enough."""
    if len(found.trials) >= search.max_rates:
        return None
    passed, failed = found.rate, found.failed_rate
    if failed is None:
        if not found.trials:
            return search.start_rate
        return min(2 * passed, search.max_rate) if passed < search.max_rate else None
    if not passed:
        return failed / 2
    return (passed + failed) / 2 if failed - passed > search.tolerance * passed else None
