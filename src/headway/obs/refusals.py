"""Refusals by cause, and what stands behind them: the queue in tokens, the guardrails."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Protocol

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from headway.core import Cause
from headway.obs.prometheus import PREFIX


class Gatekeeping(Protocol):
    """What admission tells about itself; `engine.outputs.EngineStats` does."""

    @property
    def num_queued_tokens(self) -> int: ...

    @property
    def refused(self) -> Mapping[str, int]: ...

    @property
    def guardrail_level(self) -> int: ...


class Refusals(Collector):
    """Families about admission. `stats` tells the engine's refusals, `others` those made before it was asked."""

    def __init__(self, stats: Callable[[], Gatekeeping], others: Callable[[], Mapping[str, int]]) -> None:
        self._stats, self._others = stats, others

    def describe(self) -> list[Metric]:
        """Nothing: families are made when they are read."""
        return []

    def collect(self) -> Iterator[Metric]:
        """One counter per cause, known ones from the start, and two gauges."""
        stats, others = self._stats(), self._others()
        refused = CounterMetricFamily(
            PREFIX + "admission_rejections", "Requests refused for now, by reason.", labels=["reason"]
        )
        for cause in Cause:
            refused.add_metric([cause], stats.refused.get(cause, 0) + others.get(cause, 0))
        yield refused
        yield GaugeMetricFamily(
            PREFIX + "num_tokens_waiting", "Prompt tokens that wait for their first place.", stats.num_queued_tokens
        )
        yield GaugeMetricFamily(
            PREFIX + "guardrail_level", "0: all promises hold; 1, 2: how much is held back.", stats.guardrail_level
        )
