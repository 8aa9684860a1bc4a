"""A run's charts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from headway.report.chart import Chart, Limit, Mark, Series, cdf
from headway.report.metrics import RunMetrics, by_length
from headway.report.record import Outcome, RequestRecord, RunRecord
from headway.report.step_plots import step_charts
from headway.report.window import Window, token_times

NUM_BINS = 120
MAX_GROUPS = 8

_COLOUR_OF = {Outcome.OK: 0, Outcome.REFUSED: 1, Outcome.FAILED: 3, Outcome.CANCELLED: 2}


def run_charts(run: RunRecord, metrics: RunMetrics) -> list[Chart]:
    """All charts of a report, the ones that have nothing to show left out."""
    inside = [request for request in run.requests if metrics.window.has(request.intended_s) and request.is_ok]
    charts = [
        _rates(run, metrics.window),
        _in_flight(run, metrics.window),
        _ttft_over_time(run, metrics.window),
        _latency_cdf(inside, "TTFT", lambda request: request.ttft_s, _ttft_limits(inside)),
        _gap_cdf(inside),
        _latency_cdf(inside, "E2E latency", lambda request: request.e2e_s, []),
        _interference(inside),
        _tenants(run, metrics.window),
        *step_charts(run.steps),
    ]
    return [chart for chart in charts if chart is not None and any(len(series.x) for series in chart.series)]


def _rates(run: RunRecord, window: Window) -> Chart:
    edges = np.linspace(0, max(run.duration_s, 1e-9), NUM_BINS + 1)
    width_s = edges[1] - edges[0]
    output = np.histogram(token_times(run.requests), edges)[0] / width_s
    return Chart(
        title="Output tokens over time",
        x_label="seconds since the start",
        y_label="tokens per second",
        series=[Series(name="output", x=edges[:-1] + width_s / 2, y=output)],
        shaded=_outside(run, window),
        caption="Shaded: not counted.",
    )


def _in_flight(run: RunRecord, window: Window) -> Chart:
    sent = np.sort([request.sent_s for request in run.requests if request.sent_s is not None])
    ended = np.sort([request.end_s for request in run.requests if request.sent_s is not None])
    first = np.sort([request.first_s for request in run.requests if request.first_s is not None])
    grid = np.linspace(0, run.duration_s, 400)
    flying = np.searchsorted(sent, grid, "right") - np.searchsorted(ended, grid, "right")
    begun = np.sort([request.end_s for request in run.requests if request.first_s is not None])
    streaming = np.searchsorted(first, grid, "right") - np.searchsorted(begun, grid, "right")
    return Chart(
        title="Requests in flight",
        x_label="seconds since the start",
        y_label="requests",
        series=[
            Series(name="sent and not ended", x=grid, y=flying, mark=Mark.STEPS),
            Series(name="of these, receiving tokens", x=grid, y=streaming, mark=Mark.STEPS),
        ],
        shaded=_outside(run, window),
    )


def _ttft_over_time(run: RunRecord, window: Window) -> Chart:
    series = []
    for outcome in Outcome:
        part = [r for r in run.requests if r.outcome is outcome]
        waits = [1e3 * (r.ttft_s if r.ttft_s is not None else r.end_s - r.intended_s) for r in part]
        name = outcome.value if outcome is Outcome.OK else f"{outcome.value} (time until its end)"
        moments = [r.intended_s for r in part]
        series.append(Series(name=name, x=moments, y=waits, mark=Mark.DOTS, colour=_COLOUR_OF[outcome]))
    return Chart(
        title="Time to first token of each request",
        x_label="intended time of sending, s",
        y_label="ms",
        series=[one for one in series if len(one.x)],
        limits=_across(_ttft_limits(run.requests)),
        shaded=_outside(run, window),
    )


def _latency_cdf(
    requests: Sequence[RequestRecord],
    name: str,
    value_of: Callable[[RequestRecord], float | None],
    limits: Sequence[Limit],
) -> Chart:
    """One curve, or one for each class or tenant where there are several."""
    groups = _busiest(map(_group_of, requests))
    by_group: dict[str, list[float]] = {group: [] for group in groups}
    for request in requests:
        group, value = _group_of(request), value_of(request)
        if value is not None and group in by_group:
            by_group[group].append(1e3 * value)
    series = [cdf(group or name, part) for group, part in by_group.items() if part]
    return Chart(
        title=f"Distribution of {name}", x_label="ms", y_label="% of requests", series=series, x_log=True, limits=limits
    )


def _gap_cdf(requests: Sequence[RequestRecord]) -> Chart | None:
    gaps = [1e3 * np.diff(np.asarray(request.token_s, np.float64)) for request in requests if len(request.token_s) > 1]
    if not gaps:
        return None
    largest = [float(gap.max()) for gap in gaps]
    return Chart(
        title="Distribution of gaps between tokens",
        x_label="ms",
        y_label="%",
        series=[cdf("all gaps (ITL)", np.concatenate(gaps)), cdf("largest gap of each answer", largest)],
        x_log=True,
        limits=[
            Limit(name=f"TPOT limit {1e3 * limit:g} ms", x=1e3 * limit)
            for limit in sorted({r.slo.tpot_s for r in requests if r.slo.tpot_s is not None})
        ],
    )


def _interference(requests: Sequence[RequestRecord]) -> Chart | None:
    groups = by_length(requests)
    if len(groups) < 2:
        return None
    series = [
        cdf(f"prompts of {name}", [1e3 * r.ttft_s for r in part if r.ttft_s is not None])
        for name, part in groups.items()
    ]
    return Chart(
        title="Time to first token by prompt length",
        x_label="ms",
        y_label="% of requests",
        series=series,
        x_log=True,
        caption="Curves of short prompts that lie on those of long ones: short requests wait for long prompts.",
    )


def _tenants(run: RunRecord, window: Window) -> Chart | None:
    names = [name for name in _busiest(request.tenant for request in run.requests) if name]
    if len(names) < 2:
        return None
    edges = np.linspace(0, max(run.duration_s, 1e-9), NUM_BINS + 1)
    series = []
    for name in names:
        part = [request for request in run.requests if request.tenant == name]
        served = np.cumsum(np.histogram(token_times(part), edges)[0]) / part[0].weight
        series.append(Series(name=name, x=edges[1:], y=served))
    return Chart(
        title="Service of each tenant",
        x_label="seconds since the start",
        y_label="output tokens ÷ weight, cumulated",
        series=series,
        shaded=_outside(run, window),
        caption=f"Parallel lines while all have work: fair shares. At most {MAX_GROUPS} tenants, the busiest.",
    )


def _busiest(names: Iterable[str]) -> list[str]:
    """The most frequent names, at most as many as there are colours."""
    return sorted(name for name, _ in Counter(names).most_common(MAX_GROUPS))


def _group_of(request: RequestRecord) -> str:
    return request.traffic_class or request.tenant


def _ttft_limits(requests: Iterable[RequestRecord]) -> list[Limit]:
    """The TTFT that was promised, as lines up a chart of milliseconds; none where there are many different promises."""
    limits = sorted({request.slo.ttft_s for request in requests if request.slo.ttft_s is not None})
    return [Limit(name=f"SLO {1e3 * limit:g} ms", x=1e3 * limit) for limit in limits] if len(limits) <= 3 else []


def _across(limits: Iterable[Limit]) -> list[Limit]:
    return [Limit(name=limit.name, y=limit.x) for limit in limits]


def _outside(run: RunRecord, window: Window) -> list[tuple[float, float]]:
    parts = [(0.0, window.begin_s), (window.end_s, run.duration_s)]
    return [(begin, end) for begin, end in parts if end > begin]
