"""What watching costs: processor time that went into the live view and not into serving."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from prometheus_client.core import CounterMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from headway.obs.prometheus import PREFIX


class Spent(Collector):
    """One counter; `seconds` tells its value."""

    def __init__(self, seconds: Callable[[], float]) -> None:
        self._seconds = seconds

    def describe(self) -> list[Metric]:
        """Nothing: the family is made when it is read."""
        return []

    def collect(self) -> Iterator[Metric]:
        """The counter."""
        yield CounterMetricFamily(
            PREFIX + "live_view_cpu_seconds", "Processor time spent on the live view and its readers.", self._seconds()
        )
