"""Functions known at sample points: linear in between, and beyond the last one as over its last half.

Not as between the last two: kernel times climb in stairs, and neighbours may stand on the same one.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping

Point = tuple[int, ...]


class Curve:
    """A function of one count. Below the first sample it is flat: nothing gets cheaper than one."""

    def __init__(self, samples: Mapping[int, float]) -> None:
        assert samples, "a curve needs a sample"
        self._counts = sorted(samples)
        self._values = [samples[count] for count in self._counts]

    def at(self, count: float) -> float:
        """Its value."""
        low, high, share = _place(self._counts, count)
        values = self._values
        return values[low] if not share else values[low] + share * (values[high] - values[low])


class Grid:
    """A function of several counts, nested: a curve of curves. Each branch has the points it was given."""

    def __init__(self, samples: Mapping[Point, float], axis: int = 0) -> None:
        assert samples, "a grid needs a sample"
        self._axis = axis
        branches: dict[int, dict[Point, float]] = {}
        for point, value in samples.items():
            branches.setdefault(point[axis], {})[point] = value
        self._counts = sorted(branches)
        is_last = axis == len(next(iter(samples))) - 1
        self._values = [next(iter(branches[count].values())) for count in self._counts] if is_last else []
        self._branches = [] if is_last else [Grid(branches[count], axis + 1) for count in self._counts]

    def at(self, point: tuple[float, ...]) -> float:
        """Its value; `point` has one count per axis."""
        low, high, share = _place(self._counts, point[self._axis])
        if self._values:
            values = self._values
            return values[low] if not share else values[low] + share * (values[high] - values[low])
        below = self._branches[low].at(point)
        return below if not share else below + share * (self._branches[high].at(point) - below)


def on_doubling_axes(samples: Mapping[Point, float], axes: Iterable[int]) -> dict[Point, float]:
    """The samples on a grid that doubles along `axes`, or all of them where that would be fewer than half.

    Profilers sweep such grids and add single shots between them, with which the grid would be ragged.
    """
    kept = dict(samples)
    for axis in axes:
        first = min((point[axis] for point in kept if point[axis]), default=1)
        kept = {point: value for point, value in kept.items() if _is_doubled(point[axis], first)}
    return kept if 2 * len(kept) >= len(samples) or len(kept) > 500 else dict(samples)


def _is_doubled(count: int, first: int) -> bool:
    times, rest = divmod(count, first)
    return not rest and not times & (times - 1)


def _place(counts: list[int], count: float) -> tuple[int, int, float]:
    """Two samples with `count` between them, and how far on the way: beyond 1 behind the last one.

    There the first of the two is the last one at or below half of it, or else the very first.
    """
    if count <= counts[0] or len(counts) == 1:
        return 0, 0, 0.0
    last = len(counts) - 1
    if count <= counts[last]:
        high = bisect_left(counts, count)
        low = high - 1
    else:
        high = last
        low = max(0, bisect_right(counts, counts[last] / 2) - 1)
    return low, high, (count - counts[low]) / (counts[high] - counts[low])
