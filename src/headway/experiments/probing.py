"""The highest rate at which a system still keeps a promise."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean

from headway.report import Mark, RequestRecord, RunRecord, Series
from headway.sim import Plan, Plant, Pool, simulate
from headway.workload import WorkItem

_MOST_STEPS = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """How a highest rate is sought: to within a factor `precision`, and up to `reach` times from the start."""

    precision: float = 1.06
    reach: float = 256.0


THOROUGH = Search()


class RateCurve:
    """A figure as a function of the request rate. Every rate is measured once."""

    def __init__(self, name: str, measure: Callable[[float], float]) -> None:
        self.name = name
        self._measure = measure
        self._points: dict[float, float] = {}

    def at(self, rate: float) -> float:
        """The figure at a rate."""
        if rate not in self._points:
            self._points[rate] = self._measure(rate)
        return self._points[rate]

    def highest(self, limit: float, start: float, search: Search = THOROUGH) -> float:
        """The highest rate at which the figure is at most `limit`; it grows with the rate.

        Doubles or halves from `start`, then bisects until the ends are near enough. 0 where even `start` ÷ reach is
        too much, `start` · reach where even that is not: then there were too few requests to wait.
        """
        low, high = 0.0, math.inf
        rate = start
        for _ in range(_MOST_STEPS):
            if self.at(rate) <= limit:
                low = max(low, rate)
            else:
                high = min(high, rate)
            if high / search.precision <= low or not start / search.reach < rate < start * search.reach:
                break
            rate = math.sqrt(low * high) if low and high < math.inf else (low * 2 or high / 2)
        return low

    def series(self, most: float = math.inf) -> Series:
        """All that was measured, by rate; figures beyond `most` are cut."""
        points = sorted(self._points.items())
        return Series(
            name=self.name, x=[rate for rate, _ in points], y=[min(y, most) for _, y in points], mark=Mark.LINE
        )


def run(items: Sequence[WorkItem], plant: Plant, policy: str, **settings: object) -> RunRecord:
    """One simulation on one replica."""
    plan = Plan(policy=policy, settings={name: str(value) for name, value in settings.items()})
    return simulate(items, Pool(plant=plant, plan=plan))


def answered(record: RunRecord) -> list[RequestRecord]:
    """The requests of a run, all of which must have been answered."""
    lost = [request for request in record.requests if not request.is_ok]
    assert not lost, f"{len(lost)} requests of an experiment were not answered: {lost[0].reason}"
    return list(record.requests)


def token_latencies(record: RunRecord) -> list[float]:
    """Latency per output token, of each request: what Orca's and vLLM's papers call normalised latency."""
    return [(request.e2e_s or 0.0) / request.num_output for request in answered(record)]


def mean_token_latency(record: RunRecord) -> float:
    """The mean of `token_latencies`."""
    return fmean(token_latencies(record))


def throughput(record: RunRecord) -> float:
    """Requests per second, from the first arrival to the last token."""
    return len(answered(record)) / record.duration_s
