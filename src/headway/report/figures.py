"""Charts as files. SVG needs nothing; other kinds are drawn by matplotlib, the extra `plots`."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Protocol, cast

import numpy as np

from headway.errors import BadSetting
from headway.report.chart import Chart, Mark, Series, thinned
from headway.report.svg import draw_file

COLOURS = ("#0068b3", "#c85200", "#00805f", "#b0295f", "#8a6d00", "#3b8fc7", "#6b4fa0", "#555555")
KINDS = (".svg", ".png", ".pdf")


def save_chart(chart: Chart, path: Path) -> None:
    """Write the chart to a .svg, .png or .pdf file. Raises `BadSetting` for another kind, or without matplotlib."""
    if path.suffix not in KINDS:
        raise BadSetting(f"figure {path}: its name must end in one of {', '.join(KINDS)}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".svg":
            path.write_text(draw_file(chart), encoding="utf-8")
        else:
            _save_with_matplotlib(chart, path)
    except OSError as error:
        raise BadSetting(f"cannot write figure {path}: {error.strerror or error}") from error


def _save_with_matplotlib(chart: Chart, path: Path) -> None:
    try:
        figure_module = importlib.import_module("matplotlib.figure")
    except ImportError:
        raise BadSetting(
            f"figure {path}: {path.suffix} files need matplotlib (pip install 'headway[plots]'); .svg files do not"
        ) from None
    figure = figure_module.Figure(figsize=(6.4, 3.6), layout="constrained")
    axes = figure.subplots()
    stacked = [one for one in chart.series if one.mark is Mark.STACK]
    for k, one in enumerate(chart.series):
        if one.mark is not Mark.STACK and len(one.x):
            _draw(axes, thinned(one), COLOURS[(k if one.colour is None else one.colour) % len(COLOURS)])
    if stacked:
        axes.stackplot(
            np.asarray(stacked[0].x), *(np.asarray(one.y) for one in stacked), labels=[one.name for one in stacked]
        )
    _dress(axes, chart)
    figure.savefig(path, dpi=150)


class _Axes(Protocol):
    """What is used of matplotlib's axes: the library is optional, so its own types cannot stand here."""

    def plot(self, *points: object, **style: object) -> object: ...
    def axhline(self, y: float, **style: object) -> object: ...
    def axvline(self, x: float, **style: object) -> object: ...
    def axvspan(self, xmin: float, xmax: float, **style: object) -> object: ...
    def set_xscale(self, value: str) -> object: ...
    def set_yscale(self, value: str) -> object: ...
    def set(self, **properties: str) -> object: ...
    def grid(self, *, visible: bool, alpha: float) -> object: ...
    def legend(self, *, fontsize: str) -> object: ...


def _draw(axes: _Axes, series: Series, colour: str) -> None:
    if series.mark is Mark.DOTS:
        axes.plot(series.x, series.y, ".", color=colour, label=series.name, markersize=3, alpha=0.6)
    else:
        style = "steps-post" if series.mark is Mark.STEPS else "default"
        axes.plot(series.x, series.y, color=colour, label=series.name, drawstyle=style, linewidth=1.3)


def _dress(axes: _Axes, chart: Chart) -> None:
    for limit in chart.limits:
        if limit.y is not None:
            axes.axhline(limit.y, color="black", linestyle="--", linewidth=0.9, label=limit.name)
        else:
            axes.axvline(cast("float", limit.x), color="black", linestyle="--", linewidth=0.9, label=limit.name)
    for begin, end in chart.shaded:
        axes.axvspan(begin, end, color="grey", alpha=0.13)
    if chart.x_log:
        axes.set_xscale("log")
    if chart.y_log:
        axes.set_yscale("log")
    axes.set(title=chart.title, xlabel=chart.x_label, ylabel=chart.y_label)
    axes.grid(visible=True, alpha=0.3)
    if len(chart.series) + len(chart.limits) > 1:
        axes.legend(fontsize="small")
