"""Requests and tokens per tenant, with a bounded number of labels."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Protocol

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from headway.obs.prometheus import PREFIX

MAX_TENANTS = 100
OTHER = "_other"  # no tenant can be called so: names begin with a letter or a digit


class Used(Protocol):
    """What a tenant used since the start; `tenancy.Usage` is one."""

    @property
    def requests(self) -> int: ...

    @property
    def refused(self) -> int: ...

    @property
    def prompt_tokens(self) -> int: ...

    @property
    def cached_tokens(self) -> int: ...

    @property
    def output_tokens(self) -> int: ...


class TenantFigures(Collector):
    """Families with a `tenant` label. The first `MAX_TENANTS` that are ever seen keep a label; the rest are `_other`.

    So a name's counter never falls, and the number of series is bounded whatever the tenants file becomes.
    """

    def __init__(self, used: Callable[[], Mapping[str, Used]], running: Callable[[], Mapping[str, int]]) -> None:
        self._used, self._running = used, running
        self._labels: dict[str, str] = {}

    def describe(self) -> list[Metric]:
        """Nothing: families are made when they are read."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Counters of what was used, and what runs now."""
        used, running = self._used(), self._running()
        for name in [*running, *used]:
            self._labels.setdefault(name, name if len(self._labels) < MAX_TENANTS else OTHER)
        tokens = CounterMetricFamily(
            PREFIX + "tenant_tokens", "Tokens of a tenant; prompt counts cached ones too.", labels=["tenant", "kind"]
        )
        for kind in ("prompt", "cached", "output"):
            for label, count in self._summed({name: getattr(use, f"{kind}_tokens") for name, use in used.items()}):
                tokens.add_metric([label, kind], count)
        yield tokens
        requests = CounterMetricFamily(
            PREFIX + "tenant_requests",
            "Requests of a tenant that ended, or were refused.",
            labels=["tenant", "outcome"],
        )
        for outcome, attribute in (("ended", "requests"), ("refused", "refused")):
            for label, count in self._summed({name: getattr(use, attribute) for name, use in used.items()}):
                requests.add_metric([label, outcome], count)
        yield requests
        gauge = GaugeMetricFamily(
            PREFIX + "tenant_requests_running", "Requests of a tenant in the engine.", labels=["tenant"]
        )
        for label, count in self._summed(running):
            gauge.add_metric([label], count)
        yield gauge

    def _summed(self, counts: Mapping[str, int]) -> list[tuple[str, int]]:
        sums: dict[str, int] = {}
        for name, count in counts.items():
            label = self._labels[name]
            sums[label] = sums.get(label, 0) + count
        return list(sums.items())
