"""Charts as data. `svg` draws them into pages, `figures` into files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

Values = Sequence[float] | NDArray[np.float64] | NDArray[np.int64]

MAX_POINTS = 800


class Mark(StrEnum):
    """How a series is drawn."""

    LINE = "line"
    STEPS = "steps"
    DOTS = "dots"
    STACK = "stack"  # areas on top of each other, in the chart's order


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """Points (x, y), drawn in the colour number `colour` of the palette, or the next one."""

    name: str
    x: Values
    y: Values
    mark: Mark = Mark.LINE
    colour: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """A line across the chart at the value `y`, or up it at `x`, with its name."""

    name: str
    y: float | None = None
    x: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """One picture. `shaded` are stretches of x that do not count: warm-up, drain."""

    title: str
    x_label: str
    y_label: str
    series: Sequence[Series]
    x_log: bool = False
    y_log: bool = False
    limits: Sequence[Limit] = ()
    shaded: Sequence[tuple[float, float]] = ()
    caption: str = ""


def cdf(name: str, values: Values, *, colour: int | None = None) -> Series:
    """The empirical distribution: y % of the values are at most x. At most 400 points, exact at each."""
    ordered = np.sort(np.asarray(values, np.float64))
    ranks = np.unique(np.linspace(1, len(ordered), min(400, len(ordered))).round().astype(np.int64))
    return Series(name=name, x=ordered[ranks - 1], y=100 * ranks / len(ordered), mark=Mark.STEPS, colour=colour)


def thinned(series: Series, max_points: int = MAX_POINTS) -> Series:
    """The series with at most about `max_points` points. Lines keep the extremes of every stretch."""
    x, y = np.asarray(series.x, np.float64), np.asarray(series.y, np.float64)
    if len(x) <= max_points:
        return replace(series, x=x, y=y)
    if series.mark is Mark.DOTS:
        keep = np.linspace(0, len(x) - 1, max_points).astype(np.int64)
        return replace(series, x=x[keep], y=y[keep])
    edges = np.linspace(0, len(x), max_points // 2 + 1).astype(np.int64)
    picked: set[int] = {0, len(x) - 1}
    for low, high in pairwise(edges.tolist()):
        if high > low:
            picked |= {low + int(np.argmin(y[low:high])), low + int(np.argmax(y[low:high]))}
    keep = np.array(sorted(picked))
    return replace(series, x=x[keep], y=y[keep])
