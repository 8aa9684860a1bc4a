"""Families about the work itself: steps and their times, preemptions, waiting by reason, blocks, and the ledger."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from headway.core import (
    Admitted,
    Event,
    Finished,
    Hold,
    Preempted,
    PreemptMethod,
    Rejected,
    SequenceFinished,
    StepRecord,
)
from headway.obs.histogram import Histogram
from headway.obs.prometheus import PREFIX
from headway.obs.token_ledger import Entry, TokenLedger

STEP_S = (*(0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075), *(0.1, 0.15, 0.2, 0.3, 0.5, 1.0, 2.0, 5.0))
RATIO = (0.25, 0.5, 0.75, 0.9, 1.0, 1.1, 1.25, 1.5, 2.0, 4.0)
RELEASE_S = (0.0001, 0.001, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)

_HISTOGRAMS: dict[str, tuple[str, tuple[float, ...]]] = {
    "step_time_seconds": ("Planning to the end of the step.", STEP_S),
    "step_time_actual_over_predicted": ("Step time ÷ what the policy predicted, where it does.", RATIO),
    "kv_release_time_seconds": ("End or abort of an answer to all its blocks given back.", RELEASE_S),
}


class Standing(Protocol):
    """How queue and KV memory stand; `engine.outputs.EngineStats` tells."""

    @property
    def num_waiting(self) -> int: ...

    @property
    def num_blocks(self) -> int: ...

    @property
    def num_used_blocks(self) -> int: ...

    @property
    def num_cached_blocks(self) -> int: ...

    @property
    def num_loosened_blocks(self) -> int: ...


class WorkFigures(Collector):
    """Listens to one engine's events, its ledger's included. `stats` tells how queue and memory stand."""

    def __init__(self, stats: Callable[[], Standing], ledger: TokenLedger) -> None:
        self._stats, self._ledger = stats, ledger
        self._lock = threading.Lock()
        self._histograms = {name: Histogram(edges) for name, (_, edges) in _HISTOGRAMS.items()}
        self._executor_s = 0.0
        self._preemptions = Counter[str]()
        self._waiting = Counter[str]()
        self._preempted: set[str] = set()
        self._ended_s: dict[str, float] = {}

    def on_events(self, events: Iterable[Event]) -> None:
        """Count what happened; called in the engine's thread."""
        with self._lock:
            for event in events:
                self._take(event)

    def _take(self, event: Event) -> None:
        match event:
            case StepRecord():
                self._add_step(event)
            case Admitted(seq_id=seq_id):
                self._preempted.discard(seq_id)
            case Preempted(seq_id=seq_id, method=method):
                self._preemptions[method.value] += 1
                if method is not PreemptMethod.SWAP:
                    self._preempted.add(seq_id)
            case SequenceFinished(seq_id=seq_id, request_id=name, at_s=at_s):
                self._preempted.discard(seq_id)
                self._ended_s[name] = at_s
            case Finished(request=request, at_s=at_s):
                self._histograms["kv_release_time_seconds"].add(at_s - self._ended_s.pop(request.id, at_s))
            case Rejected(request=request):
                self._ended_s.pop(request.id, None)
                self._preempted -= {name for name in self._preempted if name.partition("/")[0] == request.id}
            case _:
                pass

    def _add_step(self, record: StepRecord) -> None:
        self._executor_s += record.executor_s
        if record.grants:
            seconds = record.end_s - record.start_s
            self._histograms["step_time_seconds"].add(seconds)
            if record.predicted_s:
                self._histograms["step_time_actual_over_predicted"].add(seconds / record.predicted_s)
        own = Counter(str(hold) for hold in record.held.values())
        rest = record.queued.num_waiting - own.total()
        if rest > 0:
            own[record.limit or Hold.POLICY] += rest
        self._waiting = own

    def waiting(self) -> dict[str, int]:
        """Sequences that wait, by what kept them at the last step."""
        if not self._stats().num_waiting:
            return {}  # the last of them left after the last step, so that no step came to say so
        with self._lock:
            return dict(self._waiting)

    def describe(self) -> list[Metric]:
        """Nothing: families are made when they are read."""
        return []

    def collect(self) -> Iterator[Metric]:
        """All families; known labels exist from the start."""
        with self._lock:
            snapshots = {name: histogram.snapshot() for name, histogram in self._histograms.items()}
            preemptions, num_preempted = Counter(self._preemptions), len(self._preempted)
            executor_s = self._executor_s
        for name, (text, _) in _HISTOGRAMS.items():
            yield HistogramMetricFamily(PREFIX + name, text, buckets=snapshots[name][0], sum_value=snapshots[name][1])
        yield CounterMetricFamily(PREFIX + "executor_seconds", "Time inside the executor, of all steps.", executor_s)
        methods = CounterMetricFamily(PREFIX + "preemptions", "Preemptions by method.", labels=["method"])
        for method in PreemptMethod:
            methods.add_metric([method.value], preemptions[method.value])
        yield methods
        reasons = GaugeMetricFamily(
            PREFIX + "num_requests_waiting_by_reason",
            "Sequences that wait, by what kept them at the last step.",
            labels=["reason"],
        )
        waiting = self.waiting()
        for hold in Hold:
            reasons.add_metric([hold], waiting.get(hold, 0))
        yield reasons
        yield GaugeMetricFamily(
            PREFIX + "num_requests_preempted", "Sequences that lost their place and wait for it again.", num_preempted
        )
        yield from self._memory()
        yield from self._tokens()

    def _memory(self) -> Iterator[Metric]:
        stats = self._stats()
        used, cached = stats.num_used_blocks, stats.num_cached_blocks
        blocks = GaugeMetricFamily(PREFIX + "kv_blocks", "KV blocks by what is in them.", labels=["state"])
        for state, num in (("used", used), ("cached", cached), ("free", max(0, stats.num_blocks - used - cached))):
            blocks.add_metric([state], num)
        yield blocks
        yield CounterMetricFamily(
            PREFIX + "kv_blocks_released", "Blocks that lost their last user.", stats.num_loosened_blocks
        )
        held = GaugeMetricFamily(
            PREFIX + "tenant_kv_blocks", "Length of the block tables of a tenant's sequences.", labels=["tenant"]
        )
        for tenant, num in self._ledger.blocks_held().items():
            held.add_metric([tenant], num)
        yield held

    def _tokens(self) -> Iterator[Metric]:
        books = self._ledger.books()
        entries = CounterMetricFamily(
            PREFIX + "token_ledger", "Tokens by what became of them; each once.", labels=["tenant", "entry"]
        )
        for tenant, counts in books.booked.items():
            for entry in Entry:
                entries.add_metric([tenant, entry], counts[entry])
        yield entries
        still = GaugeMetricFamily(
            PREFIX + "token_ledger_open", "Computed tokens of answers that are under way.", labels=["tenant"]
        )
        for tenant, num in books.num_open.items():
            still.add_metric([tenant], num)
        yield still
        yield CounterMetricFamily(PREFIX + "tokens_computed", "Rows that the model computed.", books.num_computed)
        yield GaugeMetricFamily(
            PREFIX + "token_ledger_error", "Tokens computed, less booked and open ones: always 0.", books.error
        )
