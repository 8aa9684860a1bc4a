"""A run's metrics as tables. Latencies in milliseconds, each percentile beside its sample size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from headway.report.grid import Cell, Grid
from headway.report.metrics import Group, RunMetrics
from headway.report.percentiles import Summary
from headway.report.reasons import reason_table
from headway.report.record import Outcome, RunRecord


def run_tables(run: RunRecord, metrics: RunMetrics) -> list[Grid]:
    """All tables of a report, the ones that have nothing to say left out."""
    tables = [
        outcome_table(metrics),
        *([reasons] if (reasons := reason_table(run.requests)) else []),
        throughput_table(metrics),
        latency_table(metrics.total),
        *_group_tables(metrics),
        interference_table(metrics),
    ]
    if len(metrics.tenants) > 1:
        tables.append(fairness_table(metrics))
    if server := server_table(run, metrics):
        tables.append(server)
    return tables


def outcome_table(metrics: RunMetrics) -> Grid:
    """How requests ended."""
    rows: list[Sequence[Cell]] = [
        [outcome.value, _count(metrics.total, outcome), _share(metrics.total, outcome), _count(metrics.whole, outcome)]
        for outcome in Outcome
    ]
    rows.append(
        ["all", metrics.total.num_requests, 100.0 if metrics.total.num_requests else None, metrics.whole.num_requests]
    )
    return Grid(title="Outcomes", columns=["outcome", "in window", "%", "whole run"], rows=rows)


def throughput_table(metrics: RunMetrics) -> Grid:
    """Rates over the window and over the whole run."""
    total, whole = metrics.total, metrics.whole
    rows: list[Sequence[Cell]] = [
        ["requests answered / s", total.request_rate, whole.request_rate],
        ["output tokens / s", total.output_rate, whole.output_rate],
        ["input tokens / s", total.input_rate, whole.input_rate],
        ["input + output tokens / s", total.input_rate + total.output_rate, whole.input_rate + whole.output_rate],
        ["most output tokens in one second", None, metrics.peak_output_rate],
        ["most requests in flight", None, metrics.max_in_flight],
    ]
    if total.attainment is not None:
        whole_share = None if whole.attainment is None else 100 * whole.attainment
        rows += [
            ["goodput: requests within their SLO / s", total.goodput, whole.goodput],
            ["SLO attainment, %", 100 * total.attainment, whole_share],
        ]
    return Grid(
        title="Throughput",
        columns=["", "window", "whole run"],
        rows=rows,
        note="Output tokens count in the window they came in, input tokens where their answer ended.",
    )


def latency_table(group: Group, title: str = "Latency, ms") -> Grid:
    """One row per metric, with sample sizes."""
    parts = group.latencies
    named: list[tuple[str, Summary]] = [
        ("queue", parts.queue),
        ("TTFT", parts.ttft),
        ("TTFT from sending", parts.ttft_since_sent),
        ("ITL", parts.itl),
        ("TPOT", parts.tpot),
        ("E2E", parts.e2e),
        ("largest gap of a stream", parts.largest_gap),
        ("ITL deviation of a stream", parts.gap_deviation),
        ("client lateness", parts.lateness),
    ]
    levels = list(parts.ttft.levels)
    rows = [_latency_row(name, summary) for name, summary in named if summary.size]
    return Grid(
        title=title,
        columns=["", "n", "mean", *(f"P{level:g}" for level in levels), "max"],
        rows=rows,
        note="Counted from the intended time of sending, of requests answered in full. n is the sample size.",
    )


def interference_table(metrics: RunMetrics) -> Grid:
    """TTFT and ITL by prompt length: what long prompts do to short ones."""
    return Grid(
        title="By prompt length",
        columns=["prompt tokens", *_GROUP_COLUMNS],
        rows=[[name, *_group_cells(group)] for name, group in metrics.lengths.items()],
        note="TTFT and ITL in ms. Where short prompts wait as long as long ones, the long ones hold them up.",
    )


def fairness_table(metrics: RunMetrics) -> Grid:
    """How evenly tenants were served."""
    rows: list[Sequence[Cell]] = [
        ["Jain index of service ÷ weight", metrics.jain_service],
        ["Jain index of tokens received ÷ asked for", metrics.jain_satisfaction],
        ["largest gap in weighted tokens while both had work", metrics.service_gap],
    ]
    return Grid(title="Fairness between tenants", columns=["", "value"], rows=rows, note="A Jain index of 1 is even.")


def server_table(run: RunRecord, metrics: RunMetrics) -> Grid | None:
    """What the server or simulator told of itself, None where it told nothing."""
    ledger = metrics.ledger
    rows: list[Sequence[Cell]] = []
    if ledger.num_cached is not None:
        rate = None if ledger.hit_rate is None else 100 * ledger.hit_rate
        rows += [["cached prompt tokens", ledger.num_cached], ["hit rate, %", rate]]
    if ledger.num_preemptions is not None:
        rows.append(["preemptions of these requests", ledger.num_preemptions])
    rows += [[name.removeprefix("num_").replace("_", " "), value] for name, value in run.server.items()]
    note = "Counters of its own are over the whole run." if run.server else ""
    return Grid(title="What the server told", columns=["", "value"], rows=rows, note=note) if rows else None


_GROUP_COLUMNS = ["n", "ok", "TTFT P50", "TTFT P95", "TTFT P99", "ITL P50", "ITL P99", "ITL max", "tok/s", "SLO %"]


def _group_tables(metrics: RunMetrics) -> list[Grid]:
    named: list[tuple[str, str, Mapping[str, Group]]] = [
        ("By class", "class", metrics.classes),
        ("By tenant", "tenant", metrics.tenants),
    ]
    return [
        Grid(
            title=title,
            columns=[column, *_GROUP_COLUMNS],
            rows=[[name, *_group_cells(group)] for name, group in groups.items()],
            note="TTFT and ITL in ms; tok/s are output tokens per second of the window.",
        )
        for title, column, groups in named
        if groups
    ]


def _group_cells(group: Group) -> list[Cell]:
    ttft, itl = group.latencies.ttft, group.latencies.itl
    return [
        group.num_requests,
        _count(group, Outcome.OK),
        *(_ms(ttft.levels.get(level)) for level in (50.0, 95.0, 99.0)),
        *(_ms(itl.levels.get(level)) for level in (50.0, 99.0)),
        _ms(itl.high),
        group.output_rate,
        None if group.attainment is None else 100 * group.attainment,
    ]


def _latency_row(name: str, summary: Summary) -> list[Cell]:
    return [name, summary.size, _ms(summary.mean), *map(_ms, summary.levels.values()), _ms(summary.high)]


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else 1000 * seconds


def _count(group: Group, outcome: Outcome) -> int:
    return group.outcomes.get(outcome, 0)


def _share(group: Group, outcome: Outcome) -> float | None:
    return 100 * _count(group, outcome) / group.num_requests if group.num_requests else None
