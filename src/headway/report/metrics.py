"""A run in numbers. Formulas: docs/metrics.md."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from headway.report.fairness import jain, service_gap
from headway.report.percentiles import LEVELS, Summary, summarize
from headway.report.record import Outcome, RequestRecord, RunRecord
from headway.report.window import Window, choose_window, token_times

LENGTH_CLASSES = (0, 256, 1024, 4096, 16384)  # prompt tokens: a class holds more than one bound, up to the next


@dataclass(frozen=True, slots=True, kw_only=True)
class Latencies:
    """Seconds. Of requests that got their whole answer, but for `lateness`, which is of all that were sent."""

    queue: Summary
    ttft: Summary
    ttft_since_sent: Summary
    itl: Summary
    tpot: Summary
    e2e: Summary
    lateness: Summary
    largest_gap: Summary  # of each stream, its largest ITL
    gap_deviation: Summary  # of each stream, the deviation of its ITLs


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Requests that have something in common. Rates are per second of the window; None where nothing was promised."""

    num_requests: int
    outcomes: Mapping[Outcome, int]
    latencies: Latencies
    num_input: int  # prompt tokens of requests answered in the window
    num_output: int  # output tokens that came in the window
    request_rate: float
    input_rate: float
    output_rate: float
    attainment: float | None
    goodput: float | None

    @property
    def failure_share(self) -> float:
        """Refused and failed ÷ all."""
        bad = self.outcomes.get(Outcome.REFUSED, 0) + self.outcomes.get(Outcome.FAILED, 0)
        return bad / self.num_requests if self.num_requests else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """Where tokens went, as far as the server or simulator tells; None where it does not."""

    num_cached: int | None = None
    num_preemptions: int | None = None
    hit_rate: float | None = None  # cached ÷ prompt tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class RunMetrics:
    """All that a report says of a run."""

    window: Window
    total: Group
    whole: Group  # the same over the whole run, start and drain included
    classes: Mapping[str, Group]
    tenants: Mapping[str, Group]
    lengths: Mapping[str, Group]
    ledger: Ledger
    jain_service: float | None  # of the tenants' output tokens ÷ weight; None with fewer than two
    jain_satisfaction: float | None  # of the tenants' output tokens ÷ those they asked for
    service_gap: float | None
    max_in_flight: int
    peak_output_rate: float  # most output tokens within one second


def measure(run: RunRecord, *, levels: Sequence[float] = LEVELS) -> RunMetrics:
    """The metrics of a run over its window."""
    window = choose_window(run)
    whole = Window(begin_s=0.0, end_s=run.duration_s, rule="the whole run")

    def group(requests: Sequence[RequestRecord], part: Window = window) -> Group:
        return _group(requests, part, levels)

    tenants = _by(run.requests, lambda request: request.tenant)
    fair = len(tenants) > 1 and window.length_s > 0
    return RunMetrics(
        window=window,
        total=group(run.requests),
        whole=group(run.requests, whole),
        classes={name: group(part) for name, part in _by(run.requests, lambda r: r.traffic_class).items() if name},
        tenants={name: group(part) for name, part in tenants.items() if name},
        lengths={name: group(part) for name, part in by_length(run.requests).items()},
        ledger=_ledger([request for request in run.requests if window.has(request.intended_s)]),
        jain_service=jain([_served(part, window) / part[0].weight for part in tenants.values()]) if fair else None,
        jain_satisfaction=jain([_satisfied(part, window) for part in tenants.values()]) if fair else None,
        service_gap=service_gap(tenants, window) if fair else None,
        max_in_flight=max_in_flight(run.requests),
        peak_output_rate=_peak(run.requests),
    )


def by_length(requests: Iterable[RequestRecord]) -> dict[str, list[RequestRecord]]:
    """Requests by prompt length, short classes first; classes without any are left out."""
    bounds = [*LENGTH_CLASSES, float("inf")]
    names = [f"{low + 1}-{high}" if high != float("inf") else f">{low}" for low, high in pairwise(bounds)]
    groups: dict[str, list[RequestRecord]] = {name: [] for name in names}
    for request in requests:
        place = sum(request.num_prompt > bound for bound in LENGTH_CLASSES) - 1
        groups[names[max(0, place)]].append(request)
    return {name: part for name, part in groups.items() if part}


def max_in_flight(requests: Iterable[RequestRecord]) -> int:
    """Most requests between sending and end at one moment."""
    changes: list[tuple[float, int]] = []
    for request in requests:
        if request.sent_s is not None:
            changes += [(request.sent_s, 1), (request.end_s, -1)]
    most = now = 0
    for _, change in sorted(changes):
        now += change
        most = max(most, now)
    return most


def _group(requests: Sequence[RequestRecord], window: Window, levels: Sequence[float]) -> Group:
    inside = [request for request in requests if window.has(request.intended_s)]
    length_s = window.length_s or float("nan")
    answered = [request for request in requests if request.is_ok and window.has(request.last_s)]
    num_input, num_output = sum(request.num_prompt for request in answered), _served(requests, window)
    verdicts = [verdict for request in inside if (verdict := request.meets_slo()) is not None]
    return Group(
        num_requests=len(inside),
        outcomes=Counter(request.outcome for request in inside),
        latencies=_latencies(inside, levels),
        num_input=num_input,
        num_output=num_output,
        request_rate=len(answered) / length_s,
        input_rate=num_input / length_s,
        output_rate=num_output / length_s,
        attainment=sum(verdicts) / len(verdicts) if verdicts else None,
        goodput=sum(verdicts) / length_s if verdicts else None,
    )


def _latencies(requests: Sequence[RequestRecord], levels: Sequence[float]) -> Latencies:
    good = [request for request in requests if request.is_ok]

    def of(values: Iterable[float | None]) -> Summary:
        return summarize((value for value in values if value is not None), levels)

    gaps = [np.diff(np.asarray(request.token_s, np.float64)) for request in good if len(request.token_s) > 1]
    return Latencies(
        queue=of(request.queue_s for request in good),
        ttft=of(request.ttft_s for request in good),
        ttft_since_sent=of(request.ttft_since_sent_s for request in good),
        itl=summarize(np.concatenate(gaps) if gaps else (), levels),
        tpot=of(request.tpot_s for request in good),
        e2e=of(request.e2e_s for request in good),
        lateness=of(request.lateness_s for request in requests),
        largest_gap=of(float(gap.max()) for gap in gaps),
        gap_deviation=of(float(gap.std()) for gap in gaps),
    )


def _served(requests: Sequence[RequestRecord], window: Window) -> int:
    moments = token_times(requests)
    return int(((moments >= window.begin_s) & (moments <= window.end_s)).sum())


def _satisfied(requests: Sequence[RequestRecord], window: Window) -> float:
    inside = [request for request in requests if window.has(request.intended_s)]
    asked = sum(request.num_output if request.num_expected is None else request.num_expected for request in inside)
    return sum(request.num_output for request in inside) / asked if asked else 0.0


def _ledger(requests: Sequence[RequestRecord]) -> Ledger:
    requests = [request for request in requests if request.outcome is not Outcome.REFUSED]  # no cache was asked
    cached = [(request.num_cached, request.num_prompt) for request in requests if request.num_cached is not None]
    preempted = [request.num_preemptions for request in requests if request.num_preemptions is not None]
    num_cached, num_prompt = (sum(part) for part in zip(*cached, strict=True)) if cached else (None, None)
    return Ledger(
        num_cached=num_cached,
        num_preemptions=sum(preempted) if preempted else None,
        hit_rate=num_cached / num_prompt if num_cached is not None and num_prompt else None,
    )


def _peak(requests: Sequence[RequestRecord]) -> float:
    moments = token_times(requests)
    return float(np.unique(np.floor(moments), return_counts=True)[1].max()) if len(moments) else 0.0


def _by(requests: Iterable[RequestRecord], key: Callable[[RequestRecord], str]) -> dict[str, list[RequestRecord]]:
    groups: dict[str, list[RequestRecord]] = defaultdict(list)
    for request in requests:
        groups[key(request)].append(request)
    return dict(sorted(groups.items()))
