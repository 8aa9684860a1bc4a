"""The engine's metrics under `headway:`, with vLLM's suffixes, labels and bucket edges.

Events are counted into plain lists in the engine's thread; a scrape copies them under the same lock, and asks for a
snapshot of the load, so that it never waits for a step and changes nothing.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from headway.core import Event
from headway.obs.load import Load
from headway.obs.tally import COUNTERS, HISTOGRAMS, Tally

logger = logging.getLogger(__name__)

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
PREFIX = "headway:"
_QUIET_S = 60.0


class EngineMetrics(Collector):
    """Metrics of one engine in a registry of their own. `on_events` is the listener; `render` the page."""

    def __init__(self, model_name: str, load: Callable[[], Load]) -> None:
        self._model_name, self._load = model_name, load
        self._tally = Tally()
        self._lock = threading.Lock()
        self._complained_at = -_QUIET_S
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)

    @property
    def num_live(self) -> int:
        """Requests that have arrived and not ended: what is remembered grows with these alone."""
        return self._tally.num_live

    def on_events(self, events: Sequence[Event]) -> None:
        """Count the events of one step. Never raises: a mistake here must not stop the engine, only be logged."""
        try:
            with self._lock:
                self._tally.add(events)
        except Exception:
            if time.monotonic() - self._complained_at >= _QUIET_S:
                self._complained_at = time.monotonic()
                logger.exception("metrics are incomplete; serving goes on")

    def include(self, figures: Collector) -> None:
        """Show another collector's families on the page too."""
        self._registry.register(figures)

    def render(self) -> bytes:
        """The page in Prometheus' text format."""
        return generate_latest(self._registry)

    def describe(self) -> list[Metric]:
        """Nothing: families are made when they are read."""
        return []

    def collect(self) -> Iterator[Metric]:
        """All families, consistent with each other but for the gauges, which are as fresh as can be."""
        with self._lock:
            counters = {name: dict(values) for name, values in self._tally.counters.items()}
            histograms = {name: histogram.snapshot() for name, histogram in self._tally.histograms.items()}
        yield from self._gauges(self._load())
        for name, (text, labels) in COUNTERS.items():
            family = CounterMetricFamily(PREFIX + name, text, labels=["model_name", *labels])
            for values, count in counters[name].items():
                family.add_metric([self._model_name, *values], count)
            yield family
        for name, (text, _) in HISTOGRAMS.items():
            buckets, total = histograms[name]
            histogram = HistogramMetricFamily(PREFIX + name, text, labels=["model_name"])
            histogram.add_metric([self._model_name], buckets, total)
            yield histogram

    def _gauges(self, load: Load) -> Iterator[Metric]:
        now = {
            "num_requests_running": ("Requests on the device.", load.num_running),
            "num_requests_waiting": ("Requests that wait for their first or next place.", load.num_waiting),
            "num_requests_swapped": ("Requests whose KV lies in the host tier.", load.num_swapped),
            "kv_cache_usage_perc": ("Share of KV blocks that requests hold; 1 is full.", load.kv_usage),
        }
        for name, (text, value) in now.items():
            family = GaugeMetricFamily(PREFIX + name, text, labels=["model_name"])
            family.add_metric([self._model_name], value)
            yield family
        info = {"block_size": load.block_size, "num_gpu_blocks": load.num_blocks}
        text = "Settings of the KV cache, as labels; always 1."
        family = GaugeMetricFamily(PREFIX + "cache_config_info", text, labels=["model_name", *info])
        family.add_metric([self._model_name, *map(str, info.values())], 1)
        yield family
