"""Runs side by side: the same metrics, the ratio, and whether the difference is more than chance."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from headway.report.chart import Chart, Series, cdf
from headway.report.grid import Cell, Grid
from headway.report.metrics import RunMetrics, measure
from headway.report.page import Section, render_page
from headway.report.record import RequestRecord, RunRecord
from headway.report.spread import bootstrap, percentile
from headway.report.validity import judge

Value = Callable[[RequestRecord], float | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Latency:
    """A latency of requests, and the percentiles to compare."""

    name: str
    value: Value
    levels: tuple[float, ...] = (50.0, 95.0, 99.0)


_LATENCIES = (
    _Latency(name="TTFT", value=lambda request: request.ttft_s),
    _Latency(name="TPOT", value=lambda request: request.tpot_s),
    _Latency(name="largest gap", value=lambda request: max(request.itl_s, default=None)),
    _Latency(name="E2E", value=lambda request: request.e2e_s),
)


def compare_runs(runs: Sequence[RunRecord]) -> Grid:
    """One column per run, the ratio of the last to the first, and for two runs a verdict on each latency.

    "no clear difference" means that the 95 % bootstrap intervals of the two runs overlap. Where a run has several
    tenants, their TTFT P99 stands apart, and its ratio between a run without and one with a neighbour is isolation.
    """
    assert len(runs) >= 2, "a comparison needs two runs"
    measured = [measure(run) for run in runs]
    rows: list[Sequence[Cell]] = [*_rate_rows(measured)]
    for latency in _LATENCIES:
        samples = [_sample(run, metrics, latency.value) for run, metrics in zip(runs, measured, strict=True)]
        rows += [_latency_row(f"{latency.name} P{level:g}, ms", samples, level) for level in latency.levels]
    rows += _tenant_rows(runs, measured)
    names = [run.label or f"run {k}" for k, run in enumerate(runs, start=1)]
    return Grid(
        title="Comparison",
        columns=["", *names, "ratio", "verdict"],
        rows=rows,
        note="The ratio is last ÷ first. Verdicts rest on 95 % bootstrap intervals of each run; repeats tell more.",
    )


def compare_page(runs: Sequence[RunRecord]) -> str:
    """One self-contained HTML page about several runs."""
    grid = compare_runs(runs)
    sections = [
        Section(grids=[grid], warnings=compare_warnings(runs)),
        Section(title="Distributions", charts=[_overlay(runs, latency) for latency in _LATENCIES]),
        *(Section(title=run.label or f"run {k}", facts=run.target) for k, run in enumerate(runs, start=1)),
    ]
    return render_page("Comparison", " against ".join(grid.columns[1:-2]), sections)


def compare_warnings(runs: Sequence[RunRecord]) -> list[str]:
    """What speaks against the comparison, and against each of its runs."""
    different = [] if _same_load(runs) else ["the runs had different workloads; their numbers do not compare"]
    return different + [
        f"{run.label or f'run {k}'}: {warning}"
        for k, run in enumerate(runs, start=1)
        for warning in judge(run, measure(run)).warnings
    ]


def _same_load(runs: Sequence[RunRecord]) -> bool:
    return all(run.workload == runs[0].workload for run in runs)


def _rate_rows(measured: Sequence[RunMetrics]) -> list[Sequence[Cell]]:
    named: list[tuple[str, Callable[[RunMetrics], float | None]]] = [
        ("requests answered / s", lambda metrics: metrics.total.request_rate),
        ("output tokens / s", lambda metrics: metrics.total.output_rate),
        ("goodput / s", lambda metrics: metrics.total.goodput),
        ("SLO attainment, %", lambda metrics: _percent(metrics.total.attainment)),
        ("refused or failed, %", lambda metrics: _percent(metrics.total.failure_share)),
        ("Jain index", lambda metrics: metrics.jain_service),
    ]
    rows: list[Sequence[Cell]] = []
    for name, value in named:
        values = [value(metrics) for metrics in measured]
        if any(one is not None for one in values):
            rows.append([name, *values, _ratio(values), None])
    return rows


def _latency_row(name: str, samples: Sequence[Sequence[float]], level: float) -> list[Cell]:
    spreads = [bootstrap(sample, percentile(level)) for sample in samples]
    values: list[float | None] = [1e3 * spread.value for spread in spreads]
    first, last = spreads[0], spreads[-1]
    verdict = "no clear difference"
    if not (first.size and last.size):
        verdict = "nothing to compare"
    elif last.high < first.low:
        verdict = "lower"
    elif last.low > first.high:
        verdict = "higher"
    return [name, *values, _ratio(values), verdict]


def _tenant_rows(runs: Sequence[RunRecord], measured: Sequence[RunMetrics]) -> list[Sequence[Cell]]:
    """TTFT P99 of each tenant that all runs have: where a neighbour came, the ratio is the isolation ratio."""
    named = [{request.tenant for request in run.requests} for run in runs]
    if all(len(names) < 2 for names in named):
        return []
    rows: list[Sequence[Cell]] = []
    for tenant in sorted(set.intersection(*named)):
        samples = [
            _sample(run, metrics, lambda request: request.ttft_s, tenant)
            for run, metrics in zip(runs, measured, strict=True)
        ]
        rows.append(_latency_row(f"TTFT P99 of {tenant}, ms", samples, 99.0))
    return rows


def _sample(run: RunRecord, metrics: RunMetrics, value: Value, tenant: str | None = None) -> list[float]:
    inside = (
        request
        for request in run.requests
        if request.is_ok and metrics.window.has(request.intended_s) and tenant in (None, request.tenant)
    )
    return [found for request in inside if (found := value(request)) is not None]


def _overlay(runs: Sequence[RunRecord], latency: _Latency) -> Chart:
    series: list[Series] = []
    for k, run in enumerate(runs):
        sample = _sample(run, measure(run), latency.value)
        if sample:
            series.append(cdf(run.label or f"run {k + 1}", 1e3 * np.asarray(sample), colour=k))
    title = f"{latency.name} of each request"
    return Chart(title=title, x_label="ms", y_label="% of requests", series=series, x_log=True)


def _percent(share: float | None) -> float | None:
    return None if share is None else 100 * share


def _ratio(values: Sequence[float | None]) -> float | None:
    first, last = values[0], values[-1]
    return last / first if first and last is not None else None
