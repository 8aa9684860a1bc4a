"""The report: one page with every stage's evidence, and a picture of what there was to choose from."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from headway.report import Grid
from headway.report.chart import Chart, Limit, Mark, Series
from headway.report.page import Card, Section, render_page
from headway.tune.lab import Sample
from headway.tune.outcome import Outcome


def tuning_page(outcome: Outcome, about: Mapping[str, object], config: str) -> str:
    """One self-contained HTML page."""
    return render_page(
        "Tuning",
        outcome.chosen.setting.label(),
        [
            Section(cards=_cards(outcome), warnings=_warnings(outcome)),
            Section(
                title="What there was to choose from",
                charts=[pareto(outcome)],
                text=f"First to break: {outcome.breaks_first()}.",
            ),
            *(
                Section(title=f"{number}. {stage.name.capitalize()}", text=stage.text, grids=_tables(stage.samples))
                for number, stage in enumerate(outcome.stages, start=1)
            ),
            Section(title="Beyond", text="The chosen setting under more traffic.", grids=_tables(outcome.beyond)),
            Section(title="Measured on", facts=about),
            Section(title="Config file", facts=dict(_pairs(config))),
        ],
    )


def run_grid(samples: Sequence[Sample], title: str = "") -> Grid:
    """Runs as a table: what was set, how fast it went, each promise's value, what broke."""
    keys = list(samples[0].values) if samples else []
    rows = [
        (
            ("live: " if one.is_live else "") + one.setting.label(),
            round(one.factor, 3),
            one.output_rate,
            one.itl_p99_ms,
            *(value if math.isfinite(value) else None for value in one.values.values()),
            "yes" if one.keeps else f"no: {one.broken[0]}",
        )
        for one in samples
    ]
    return Grid(title=title, columns=("setting", "× rate", "tokens/s", "ITL P99 ms", *keys, "kept"), rows=rows)


def pareto(outcome: Outcome) -> Chart:
    """Throughput against P99 ITL: every run of the real traffic, the frontier, the choice, the live runs."""
    kept = [one for one in outcome.real if one.keeps]
    broken = [one for one in outcome.real if not one.keeps]
    series = [
        _dots("promises kept", kept, 2),
        _dots("a promise broken", broken, 3),
        Series(
            name="frontier",
            x=[one.itl_p99_ms for one in reversed(outcome.frontier)],
            y=[one.output_rate for one in reversed(outcome.frontier)],
            colour=0,
        ),
        _dots("chosen", [outcome.chosen], 1),
        _dots("live", outcome.live, 4),
    ]
    limit = next((limit for key, limit in outcome.slo.limits.items() if key == "itl_p99_ms"), None)
    return Chart(
        title="Throughput against inter-token latency",
        x_label="P99 ITL, ms",
        y_label="output tokens/s",
        series=[one for one in series if len(one.x)],
        limits=[Limit(name="limit", x=limit)] if limit else (),
        caption="Runs of the workload as it is, at several rates, in virtual time; live runs on this machine.",
    )


def _dots(name: str, samples: Sequence[Sample], colour: int) -> Series:
    return Series(
        name=name,
        x=[one.itl_p99_ms for one in samples],
        y=[one.output_rate for one in samples],
        mark=Mark.DOTS,
        colour=colour,
    )


def _cards(outcome: Outcome) -> list[Card]:
    chosen, verified = outcome.chosen, outcome.verified
    rate = outcome.rate * chosen.factor
    cards = [
        Card(name="setting", value=chosen.setting.label(), detail=f"policy {chosen.setting.policy}"),
        Card(
            name="best rate that keeps all promises" if chosen.keeps else "rate, with promises broken",
            value=f"{rate:.2f}/s" if math.isfinite(rate) else f"{chosen.output_rate:,.0f} tokens/s",
            detail=f"{chosen.factor:.2f} × the workload, in virtual time",
        ),
        Card(name="first to break", value=outcome.breaks_first().partition(":")[0], detail=outcome.breaks_first()),
    ]
    if verified is not None:
        share = verified.factor / chosen.factor
        word = "kept" if verified.keeps else f"broke {', '.join(verified.broken)}"
        cards.append(Card(name="live on this machine", value=word, detail=f"at {share:.0%} of that rate"))
    return cards


def _warnings(outcome: Outcome) -> list[str]:
    found = []
    if not outcome.chosen.keeps:
        found.append(f"No setting keeps all promises here; the least bad breaks {', '.join(outcome.chosen.broken)}.")
    elif outcome.chosen.is_burst:
        found.append(f"The best rate is no limit of this machine. What breaks first is {outcome.breaks_first()}.")
    elif outcome.chosen.factor < 1.0:
        found.append(
            f"The workload is faster than this machine: it keeps its promises up to {outcome.chosen.factor:.0%}."
        )
    if outcome.verified is not None and not outcome.verified.keeps:
        found.append(f"Live, the chosen setting broke {', '.join(outcome.verified.broken)}.")
    if outcome.verified is None:
        found.append("Nothing was run live: these are simulations.")
    return found


def _tables(samples: Sequence[Sample]) -> list[Grid]:
    return [run_grid(samples)] if samples else []


def _pairs(config: str) -> Sequence[tuple[str, str]]:
    lines = (line.partition(" = ") for line in config.splitlines() if " = " in line and not line.startswith("#"))
    return [(key, value) for key, _, value in lines]
