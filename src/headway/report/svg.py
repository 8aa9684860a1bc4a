"""Charts as inline SVG: no script, no font file, colours from the page's style so that light and dark both work."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from html import escape

import numpy as np
from numpy.typing import NDArray

from headway.report.chart import Chart, Limit, Mark, Series, thinned
from headway.report.style import NUM_COLOURS, STYLE
from headway.report.ticks import linear_ticks, log_ticks, tick_label

WIDTH, HEIGHT = 640, 300
LEFT, RIGHT, TOP, BOTTOM = 62, 12, 10, 42

Points = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Axis:
    """A range of values on a range of pixels."""

    low: float
    high: float
    begin: float
    end: float
    is_log: bool

    def place(self, values: Points) -> Points:
        """Pixels of values; what a logarithm cannot show goes to the low end."""
        low, high = self.low, self.high
        if self.is_log:
            values, low, high = np.log10(np.maximum(values, low)), math.log10(low), math.log10(high)
        placed: Points = self.begin + (values - low) / ((high - low) or 1.0) * (self.end - self.begin)
        return placed

    def at(self, value: float) -> float:
        """The pixel of one value."""
        return float(self.place(np.array([value]))[0])

    def ticks(self) -> list[float]:
        """Values worth a label."""
        return log_ticks(self.low, self.high) if self.is_log else linear_ticks(self.low, self.high)


def draw(chart: Chart) -> str:
    """The chart as a `<figure>`: title, picture, legend and caption."""
    series = _drawn(chart)
    legend = "".join(
        f'<span><i class="s{_colour(one, k)}"></i>{escape(one.name)}</span>' for k, one in enumerate(series) if one.name
    )
    caption = f'<p class="note">{escape(chart.caption)}</p>' if chart.caption else ""
    body = _picture(chart, series) if series else '<p class="note">Nothing to draw.</p>'
    return (
        f"<figure><figcaption>{escape(chart.title)}</figcaption>{body}"
        f'<div class="legend">{legend if len(series) > 1 else ""}</div>{caption}</figure>'
    )


def draw_file(chart: Chart) -> str:
    """The chart as an SVG document of its own, with title and legend inside the picture."""
    series = _drawn(chart)
    title = f'<text class="limit" x="{LEFT}" y="-8" font-weight="600">{escape(chart.title)}</text>'
    names = "".join(
        f'<path class="line s{_colour(one, k)}" d="M{LEFT + 8} {14 * k + TOP + 10}h14"/>'
        f'<text class="limit" x="{LEFT + 26}" y="{14 * k + TOP + 14}">{escape(one.name)}</text>'
        for k, one in enumerate(series if len(series) > 1 else ())
    )
    size = f'viewBox="0 -24 {WIDTH} {HEIGHT + 24}" width="{WIDTH}" height="{HEIGHT + 24}"'
    ground = f'<rect y="-24" width="{WIDTH}" height="{HEIGHT + 24}" fill="var(--bg)"/>'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="system-ui,sans-serif">'
        f"<style>{STYLE}</style>{ground}{title}{_body(chart, series)}{names}</svg>\n"
    )


def _drawn(chart: Chart) -> list[Series]:
    return _stacked([thinned(one) for one in chart.series if len(one.x)])


def _picture(chart: Chart, series: Sequence[Series]) -> str:
    label = escape(f"{chart.title}: {chart.y_label} against {chart.x_label}")
    return f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{label}">{_body(chart, series)}</svg>'


def _body(chart: Chart, series: Sequence[Series]) -> str:
    across = np.concatenate([*(np.asarray(one.x, np.float64) for one in series), _given(lim.x for lim in chart.limits)])
    up = np.concatenate([*(np.asarray(one.y, np.float64) for one in series), _given(lim.y for lim in chart.limits)])
    x_axis = _axis((LEFT, WIDTH - RIGHT), across, is_log=chart.x_log)
    y_axis = _axis((HEIGHT - BOTTOM, TOP), up, is_log=chart.y_log)
    parts = [
        *(_shade(x_axis, begin, end) for begin, end in chart.shaded),
        *_frame(chart, x_axis, y_axis),
        *(_series(one, _colour(one, k), x_axis, y_axis) for k, one in enumerate(series)),
        *(_limit(limit, x_axis, y_axis) for limit in chart.limits),
    ]
    return "".join(parts)


def _axis(pixels: tuple[float, float], values: Points, *, is_log: bool) -> _Axis:
    """An axis that shows all finite values; from zero, unless it is logarithmic."""
    shown = values[np.isfinite(values) & ((values > 0) | (not is_log))]
    low, high = (float(shown.min()), float(shown.max())) if len(shown) else (0.1, 1.0)
    if is_log:
        low, high = max(low, high * 1e-6), high * 1.05
        return _Axis(low=low, high=max(high, low * 10), begin=pixels[0], end=pixels[1], is_log=True)
    low = min(low, 0.0)
    return _Axis(low=low, high=high + (high - low) * 0.04 or 1.0, begin=pixels[0], end=pixels[1], is_log=False)


def _given(values: Iterable[float | None]) -> Points:
    return np.array([value for value in values if value is not None], np.float64)


def _frame(chart: Chart, x_axis: _Axis, y_axis: _Axis) -> Iterator[str]:
    for tick in x_axis.ticks():
        x = x_axis.at(tick)
        yield f'<path class="grid" d="M{x:.1f} {TOP}V{HEIGHT - BOTTOM}"/>'
        yield f'<text x="{x:.1f}" y="{HEIGHT - BOTTOM + 16}" text-anchor="middle">{tick_label(tick)}</text>'
    for tick in y_axis.ticks():
        y = y_axis.at(tick)
        yield f'<path class="grid" d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}"/>'
        yield f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{tick_label(tick)}</text>'
    middle = (LEFT + WIDTH - RIGHT) / 2
    yield f'<text x="{middle}" y="{HEIGHT - 8}" text-anchor="middle">{escape(chart.x_label)}</text>'
    height = (TOP + HEIGHT - BOTTOM) / 2
    yield f'<text transform="translate(14 {height}) rotate(-90)" text-anchor="middle">{escape(chart.y_label)}</text>'


def _series(series: Series, colour: int, x_axis: _Axis, y_axis: _Axis) -> str:
    x, y = x_axis.place(np.asarray(series.x, np.float64)), y_axis.place(np.asarray(series.y, np.float64))
    if series.mark is Mark.DOTS:
        return f'<path class="dots s{colour}" d="{"".join(f"M{a:.1f} {b:.1f}h0" for a, b in zip(x, y, strict=True))}"/>'
    if series.mark is Mark.STEPS:
        steps = "".join(f"H{a:.1f}V{b:.1f}" for a, b in zip(x[1:], y[1:], strict=True))
        return f'<path class="line s{colour}" d="M{x[0]:.1f} {y[0]:.1f}{steps}"/>'
    line = "L".join(f"{a:.1f} {b:.1f}" for a, b in zip(x, y, strict=True))
    if series.mark is Mark.STACK:
        base = y_axis.at(0.0)
        return f'<path class="area s{colour}" d="M{x[0]:.1f} {base:.1f}L{line}L{x[-1]:.1f} {base:.1f}Z"/>'
    return f'<path class="line s{colour}" d="M{line}"/>'


def _limit(limit: Limit, x_axis: _Axis, y_axis: _Axis) -> str:
    if limit.y is not None:
        y = y_axis.at(limit.y)
        name = (
            f'<text class="limit" x="{WIDTH - RIGHT - 4}" y="{y - 4:.1f}" text-anchor="end">{escape(limit.name)}</text>'
        )
        return f'<path class="limit" d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}"/>{name}'
    assert limit.x is not None, "a limit lies on one of the axes"
    x = x_axis.at(limit.x)
    name = f'<text class="limit" x="{x + 4:.1f}" y="{TOP + 12}">{escape(limit.name)}</text>'
    return f'<path class="limit" d="M{x:.1f} {TOP}V{HEIGHT - BOTTOM}"/>{name}'


def _shade(x_axis: _Axis, begin: float, end: float) -> str:
    first, last = (min(max(x_axis.at(value), LEFT), WIDTH - RIGHT) for value in (begin, end))
    height = HEIGHT - BOTTOM - TOP
    return f'<rect class="shade" x="{first:.1f}" y="{TOP}" width="{last - first:.1f}" height="{height}"/>'


def _stacked(series: Sequence[Series]) -> list[Series]:
    """Stacked series raised onto those before them, the highest first so that the lower ones are drawn over it."""
    stack = [one for one in series if one.mark is Mark.STACK]
    others = [one for one in series if one.mark is not Mark.STACK]
    raised: list[Series] = []
    height: Points = np.zeros(len(stack[0].x)) if stack else np.zeros(0)
    for k, one in enumerate(stack):
        height = height + np.asarray(one.y, np.float64)
        raised.insert(0, Series(name=one.name, x=one.x, y=height, mark=one.mark, colour=_colour(one, k)))
    return [*raised, *others]


def _colour(series: Series, position: int) -> int:
    return (position if series.colour is None else series.colour) % NUM_COLOURS
