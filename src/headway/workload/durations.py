"""How long people take: laws of seconds, for thinking, giving up and the like."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np


class Durations(Protocol):
    """A law of non-negative seconds."""

    def draw(self, rng: np.random.Generator) -> float:
        """One duration in seconds."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ConstantSeconds:
    """Always `value`."""

    value: float

    def draw(self, rng: np.random.Generator) -> float:  # noqa: ARG002 - the protocol's; nothing is random
        """Seconds."""
        return self.value


@dataclass(frozen=True, slots=True, kw_only=True)
class ExponentialSeconds:
    """Exponential with `mean`."""

    mean: float

    def draw(self, rng: np.random.Generator) -> float:
        """Seconds."""
        return float(rng.exponential(self.mean))


@dataclass(frozen=True, slots=True, kw_only=True)
class UniformSeconds:
    """Anything from `low` to `high`, equally likely."""

    low: float
    high: float

    def draw(self, rng: np.random.Generator) -> float:
        """Seconds."""
        return float(rng.uniform(self.low, self.high))


@dataclass(frozen=True, slots=True, kw_only=True)
class LogNormalSeconds:
    """Log-normal with `mean` and coefficient of variation `cv`."""

    mean: float
    cv: float

    def draw(self, rng: np.random.Generator) -> float:
        """Seconds."""
        variance = math.log1p(self.cv**2)
        return float(rng.lognormal(math.log(self.mean) - variance / 2, math.sqrt(variance)))
