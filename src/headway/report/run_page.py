"""The report of a run: a page good enough to hand on as it is, and the same in text and Markdown."""

from __future__ import annotations

from collections.abc import Mapping

from headway.report.metrics import RunMetrics, measure
from headway.report.page import Card, Section, render_page
from headway.report.percentiles import Summary
from headway.report.plots import run_charts
from headway.report.record import Outcome, RunRecord
from headway.report.tables import run_tables
from headway.report.validity import judge


def run_page(run: RunRecord, metrics: RunMetrics | None = None) -> str:
    """One self-contained HTML page."""
    metrics = metrics or measure(run)
    verdict = judge(run, metrics)
    title = run.label or "Load test"
    where = "in virtual time" if run.is_virtual else run.started_at
    subtitle = " · ".join(
        filter(None, [_target(run), where, f"{run.duration_s:.1f} s", f"{len(run.requests)} requests"])
    )
    return render_page(
        title,
        subtitle,
        [
            Section(cards=_cards(metrics), warnings=verdict.warnings),
            Section(title="How it went", charts=run_charts(run, metrics)),
            Section(title="Numbers", text=_window(metrics), grids=run_tables(run, metrics)),
            *_about(run),
        ],
    )


def run_text(run: RunRecord, metrics: RunMetrics | None = None) -> str:
    """The tables as plain text for a terminal, warnings first."""
    metrics = metrics or measure(run)
    warnings = [f"! {warning}" for warning in judge(run, metrics).warnings]
    blocks = [*warnings, _window(metrics), *(table.to_text() for table in run_tables(run, metrics))]
    return "\n\n".join(blocks)


def run_markdown(run: RunRecord, metrics: RunMetrics | None = None) -> str:
    """The tables as Markdown, warnings first."""
    metrics = metrics or measure(run)
    warnings = [f"> **Note.** {warning}" for warning in judge(run, metrics).warnings]
    head = f"## {run.label or 'Load test'}"
    blocks = [head, *warnings, _window(metrics), *(table.to_markdown() for table in run_tables(run, metrics))]
    return "\n\n".join(blocks) + "\n"


def _window(metrics: RunMetrics) -> str:
    window = metrics.window
    return f"Window: {window.begin_s:.1f} s to {window.end_s:.1f} s ({window.rule})."


def _cards(metrics: RunMetrics) -> list[Card]:
    total = metrics.total
    latencies = total.latencies
    cards = []
    if total.attainment is not None and total.goodput is not None:
        cards.append(
            Card(name="SLO attainment", value=f"{total.attainment:.1%}", detail=f"goodput {total.goodput:.2f}/s")
        )
    cards += [
        Card(name="answered", value=f"{total.request_rate:.2f}/s", detail=_outcomes(total.outcomes)),
        Card(name="output tokens", value=f"{total.output_rate:,.0f}/s", detail=f"input {total.input_rate:,.0f}/s"),
        _latency_card("TTFT", latencies.ttft),
        _latency_card("ITL", latencies.itl),
        _latency_card("TPOT", latencies.tpot),
        _latency_card("E2E", latencies.e2e),
    ]
    if metrics.jain_service is not None:
        gap = "" if metrics.service_gap is None else f"widest gap {metrics.service_gap:,.0f} tokens"
        cards.append(Card(name="Jain index", value=f"{metrics.jain_service:.3f}", detail=gap))
    return cards


def _latency_card(name: str, summary: Summary) -> Card:
    if not summary.size:
        return Card(name=f"{name} P50", value="-", detail="nothing measured")
    tail = f"P99 {_ms(summary.levels[99.0])}, " if 99.0 in summary.levels else ""
    return Card(name=f"{name} P50", value=_ms(summary.median), detail=f"{tail}n {summary.size:,}")


def _ms(seconds: float) -> str:
    return (
        f"{seconds:.2f} s"
        if seconds >= 10
        else f"{seconds * 1e3:.0f} ms"
        if seconds >= 0.1
        else f"{seconds * 1e3:.1f} ms"
    )


def _outcomes(outcomes: Mapping[Outcome, int]) -> str:
    return ", ".join(f"{outcomes[outcome]} {outcome.value}" for outcome in Outcome if outcomes.get(outcome))


def _target(run: RunRecord) -> str:
    return " ".join(str(run.target[key]) for key in ("model", "policy", "url") if key in run.target)


def _about(run: RunRecord) -> list[Section]:
    named = [("What was measured", run.target), ("Workload", run.workload), ("Environment", run.environment)]
    return [Section(title=title, facts=facts) for title, facts in named if facts]
