"""How long prompts and outputs are. Each law draws whole numbers of tokens, at least one.

Nothing is clipped in silence: `Truncated` draws again, `Clamped` piles up at the border, and both are asked for by
name. A continuous law is rounded, and what would round to less than one token is drawn again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from headway.errors import BadSetting

Counts = NDArray[np.int64]

MAX_REDRAWS = 1000


class Lengths(Protocol):
    """A law of lengths in tokens."""

    def draw(self, rng: np.random.Generator, size: int) -> Counts:
        """`size` lengths, each at least one."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Fixed:
    """Always `value`."""

    value: int

    def draw(self, rng: np.random.Generator, size: int) -> Counts:  # noqa: ARG002 - the protocol's; nothing is random
        """`size` equal lengths."""
        return np.full(size, self.value, np.int64)


@dataclass(frozen=True, slots=True, kw_only=True)
class Uniform:
    """Every whole number from `low` to `high`, both included, equally often."""

    low: int
    high: int

    def draw(self, rng: np.random.Generator, size: int) -> Counts:
        """`size` lengths."""
        return rng.integers(self.low, self.high + 1, size)


@dataclass(frozen=True, slots=True, kw_only=True)
class Normal:
    """Normal with `mean` and deviation `std`."""

    mean: float
    std: float

    def draw(self, rng: np.random.Generator, size: int) -> Counts:
        """`size` lengths."""
        return _redraw(lambda count: rng.normal(self.mean, self.std, count), size, 1, math.inf)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogNormal:
    """Log-normal with `mean` and coefficient of variation `cv`, both of the lengths themselves."""

    mean: float
    cv: float

    def draw(self, rng: np.random.Generator, size: int) -> Counts:
        """`size` lengths. σ² = ln(1 + cv²), μ = ln mean − σ²/2."""
        variance = math.log1p(self.cv**2)
        mu, sigma = math.log(self.mean) - variance / 2, math.sqrt(variance)
        return _redraw(lambda count: rng.lognormal(mu, sigma, count), size, 1, math.inf)


@dataclass(frozen=True, slots=True, kw_only=True)
class Zipf:
    """Length k from `low` to `high` with probability ∝ k^−`exponent`. FastServe's and VTC's synthetic loads use it."""

    exponent: float
    low: int
    high: int

    def draw(self, rng: np.random.Generator, size: int) -> Counts:
        """`size` lengths, by inversion of the exact cumulative law."""
        support = np.arange(self.low, self.high + 1, dtype=np.int64)
        cumulative = np.cumsum(support ** -float(self.exponent))
        index = np.searchsorted(cumulative, rng.random(size) * cumulative[-1], side="right")
        drawn: Counts = support[index]
        return drawn


@dataclass(frozen=True, slots=True, kw_only=True)
class Empirical:
    """One of `values`, each equally likely."""

    values: Sequence[int]

    def draw(self, rng: np.random.Generator, size: int) -> Counts:
        """`size` lengths, drawn with replacement."""
        return np.asarray(self.values, np.int64)[rng.integers(0, len(self.values), size)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantiles:
    """The law with these `values` at cumulative `levels` (0 to 1, rising), straight between them."""

    levels: Sequence[float]
    values: Sequence[float]

    def draw(self, rng: np.random.Generator, size: int) -> Counts:
        """`size` lengths."""
        return _redraw(lambda count: np.interp(rng.random(count), self.levels, self.values), size, 1, math.inf)


@dataclass(frozen=True, slots=True, kw_only=True)
class Truncated:
    """`law`, given that it lies from `low` to `high`: what falls outside is drawn again."""

    law: Lengths
    low: int
    high: int

    def draw(self, rng: np.random.Generator, size: int) -> Counts:
        """`size` lengths. Raises `BadSetting` if the law hardly ever falls inside."""
        return _redraw(lambda count: self.law.draw(rng, count), size, self.low, self.high)


@dataclass(frozen=True, slots=True, kw_only=True)
class Clamped:
    """`law`, with everything below `low` counted as `low` and above `high` as `high`. Its mean moves."""

    law: Lengths
    low: int
    high: int

    def draw(self, rng: np.random.Generator, size: int) -> Counts:
        """`size` lengths."""
        return np.clip(self.law.draw(rng, size), self.low, self.high)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scaled:
    """`law` times `factor`, rounded, at least one token."""

    law: Lengths
    factor: float

    def draw(self, rng: np.random.Generator, size: int) -> Counts:
        """`size` lengths."""
        return scale(self.law.draw(rng, size), self.factor)


def scale(counts: Counts, factor: float) -> Counts:
    """Token counts times `factor`, rounded, at least one."""
    scaled: Counts = np.maximum(1, np.rint(counts * factor)).astype(np.int64)
    return scaled


def _redraw(draw: Callable[[int], np.ndarray], size: int, low: float, high: float) -> Counts:
    """Rounded draws within [low, high]; the others are replaced by new ones."""
    values: NDArray[np.float64] = np.rint(draw(size))
    for _ in range(MAX_REDRAWS):
        outside = (values < low) | (values > high)
        if not outside.any():
            return values.astype(np.int64)
        values[outside] = np.rint(draw(int(outside.sum())))
    raise BadSetting(
        f"a length law hardly ever falls between {low:g} and {high:g} tokens: widen the bounds or move its mean"
    )
