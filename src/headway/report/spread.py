"""How sure a number is: over repeats of a run, and within one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Statistic = Callable[[NDArray[np.float64]], NDArray[np.float64]]
"""Of samples (in the last axis of an array) one value each."""

_MOST_VALUES_AT_ONCE = 1 << 20  # of the samples that are drawn; more would only take memory


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """A value, and the range it may as well have been. `size` counts runs or values behind it."""

    value: float
    low: float
    high: float
    size: int


def over_repeats(values: Sequence[float]) -> Spread:
    """Median, smallest and largest of repeated runs."""
    assert values, "there are no repeats to look at"
    return Spread(value=float(np.median(values)), low=min(values), high=max(values), size=len(values))


def bootstrap(
    sample: Sequence[float], statistic: Statistic, *, seed: int = 0, num_draws: int = 500, level: float = 95.0
) -> Spread:
    """The statistic and its percentile-bootstrap interval (Efron 1979): the sample drawn again, with replacement.

    Values of one run depend on each other (a queue remembers), so the interval is a lower bound of the uncertainty.
    """
    values = np.asarray(sample, np.float64)
    if not len(values):
        nan = float("nan")
        return Spread(value=nan, low=nan, high=nan, size=0)
    rng = np.random.default_rng(seed)
    size = len(values)
    draws: list[NDArray[np.float64]] = []
    left = num_draws
    while left:
        part = min(left, max(1, _MOST_VALUES_AT_ONCE // size))
        draws.append(statistic(values[rng.integers(0, size, (part, size))]))
        left -= part
    low, high = np.percentile(np.concatenate(draws), [50 - level / 2, 50 + level / 2])
    return Spread(value=float(statistic(values)), low=float(low), high=float(high), size=size)


def percentile(level: float) -> Statistic:
    """The percentile as a statistic, linear between neighbours."""

    def of(values: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.asarray(np.percentile(values, level, axis=-1))

    return of
