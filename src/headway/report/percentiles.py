"""Numbers about samples, always with the sample's size."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

LEVELS = (50.0, 90.0, 95.0, 99.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """A sample in a few numbers, in the sample's unit. `size` 0 means there was nothing to measure."""

    size: int
    mean: float
    std: float
    low: float
    high: float
    levels: dict[float, float]  # percentile -> value, linear between neighbours (NumPy's default)

    def at(self, level: float) -> float:
        """The percentile `level`, one of those asked for. Not a number for an empty sample."""
        return self.levels[level]

    @property
    def median(self) -> float:
        """P50; asked for by every summary made here."""
        return self.levels[50.0]


def summarize(sample: Iterable[float] | NDArray[np.float64], levels: Sequence[float] = LEVELS) -> Summary:
    """Mean, population deviation, extremes and percentiles. P50 is always among them."""
    values = sample if isinstance(sample, np.ndarray) else np.fromiter(sample, dtype=np.float64)
    asked = sorted({50.0, *levels})
    if not len(values):
        nan = float("nan")
        return Summary(size=0, mean=nan, std=nan, low=nan, high=nan, levels=dict.fromkeys(asked, nan))
    return Summary(
        size=len(values),
        mean=float(values.mean()),
        std=float(values.std()),
        low=float(values.min()),
        high=float(values.max()),
        levels=dict(zip(asked, map(float, np.percentile(values, asked)), strict=True)),
    )
