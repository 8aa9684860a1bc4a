"""When requests come. Each process is a small record of its parameters that yields moments, in seconds.

Gaps are never clipped: a clipped gap has another mean, and the load is not the one that was asked for.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

CHUNK = 1024  # gaps drawn at once


class Arrivals(Protocol):
    """An open arrival process."""

    def times(self, rng: np.random.Generator) -> Iterator[float]:
        """Moments in seconds after the start, never going back. Endless, except for a trace that is not repeated."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Poisson:
    """Independent arrivals, `rate` per second on average: exponential gaps, CV 1."""

    rate: float

    def times(self, rng: np.random.Generator) -> Iterator[float]:
        """Moments in seconds."""
        return _renewal(lambda: rng.exponential(1 / self.rate, CHUNK))


@dataclass(frozen=True, slots=True, kw_only=True)
class Constant:
    """One arrival every 1/`rate` seconds; the first after one gap."""

    rate: float

    def times(self, rng: np.random.Generator) -> Iterator[float]:  # noqa: ARG002 - the protocol's; nothing is random
        """Moments in seconds; multiples of the gap, so that no rounding adds up."""
        k = 0
        while True:
            k += 1
            yield k / self.rate


@dataclass(frozen=True, slots=True, kw_only=True)
class Gamma:
    """Gamma gaps with mean 1/`rate` and coefficient of variation `cv`. vLLM's `burstiness` is 1/cv²."""

    rate: float
    cv: float

    def times(self, rng: np.random.Generator) -> Iterator[float]:
        """Moments in seconds."""
        shape = self.cv**-2
        return _renewal(lambda: rng.gamma(shape, 1 / (shape * self.rate), CHUNK))


@dataclass(frozen=True, slots=True, kw_only=True)
class Weibull:
    """Weibull gaps with mean 1/`rate` and coefficient of variation `cv`: a heavier tail than Gamma's above CV 1."""

    rate: float
    cv: float

    def times(self, rng: np.random.Generator) -> Iterator[float]:
        """Moments in seconds."""
        shape = weibull_shape(self.cv)
        scale = 1 / (self.rate * math.gamma(1 + 1 / shape))
        return _renewal(lambda: scale * rng.weibull(shape, CHUNK))


@dataclass(frozen=True, slots=True, kw_only=True)
class OnOff:
    """Bursts: Poisson at `on_rate` for about `on_s` seconds, then at `off_rate` for about `off_s`, and so on.

    The phases' lengths are exponential (a Markov-modulated Poisson process), or exact with `phases="fixed"`.
    """

    on_rate: float
    on_s: float
    off_s: float
    off_rate: float = 0.0
    phases: str = "exponential"

    def times(self, rng: np.random.Generator) -> Iterator[float]:
        """Moments in seconds, starting with a burst."""
        begin_s = 0.0
        rates = [(self.on_rate, self.on_s), (self.off_rate, self.off_s)]
        while True:
            for rate, mean_s in rates:
                length_s = mean_s if self.phases == "fixed" else rng.exponential(mean_s)
                # Given their number, Poisson arrivals are independent and uniform over the phase.
                yield from map(float, begin_s + np.sort(rng.uniform(0, length_s, rng.poisson(rate * length_s))))
                begin_s += length_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Ramp:
    """Poisson whose rate goes from `start_rate` to `end_rate` in `ramp_s` seconds and stays there.

    `shape`: "linear", or "exponential" (equal factors in equal times; both rates must be positive).
    """

    start_rate: float
    end_rate: float
    ramp_s: float
    shape: str = "linear"

    def times(self, rng: np.random.Generator) -> Iterator[float]:
        """Moments in seconds: unit-rate Poisson moments, sent back through the integral of the rate."""
        total = self._expected(self.ramp_s)
        for moment in _renewal(lambda: rng.exponential(1.0, CHUNK)):
            if moment < total:
                yield self._when(moment)
            elif self.end_rate <= 0:
                return
            else:
                yield self.ramp_s + (moment - total) / self.end_rate

    def _expected(self, at_s: float) -> float:
        """Expected arrivals within the first `at_s` seconds of the ramp."""
        if self.shape == "exponential" and self.start_rate != self.end_rate:
            growth = math.log(self.end_rate / self.start_rate) / self.ramp_s
            return self.start_rate * math.expm1(growth * at_s) / growth
        return self.start_rate * at_s + (self.end_rate - self.start_rate) * at_s * at_s / (2 * self.ramp_s)

    def _when(self, count: float) -> float:
        """The inverse of `_expected`."""
        slope = (self.end_rate - self.start_rate) / self.ramp_s
        if slope == 0:
            return count / self.start_rate
        if self.shape == "exponential":
            growth = math.log(self.end_rate / self.start_rate) / self.ramp_s
            return math.log1p(count * growth / self.start_rate) / growth
        # The form that does not cancel when the slope is small.
        return 2 * count / (self.start_rate + math.sqrt(max(0.0, self.start_rate**2 + 2 * slope * count)))


@dataclass(frozen=True, slots=True, kw_only=True)
class AtOnce:
    """All at the start: what `--request-rate inf` means elsewhere."""

    def times(self, rng: np.random.Generator) -> Iterator[float]:  # noqa: ARG002 - the protocol's; nothing is random
        """Zeros."""
        return itertools.repeat(0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """The moments of a trace, counted from its first, `time_scale` times as far apart, `repeats` times over.

    A repetition begins one mean gap after the last arrival of the one before.
    """

    moments_s: Sequence[float]
    time_scale: float = 1.0
    repeats: int = 1

    def times(self, rng: np.random.Generator) -> Iterator[float]:  # noqa: ARG002 - the protocol's; nothing is random
        """Moments in seconds."""
        first_s, last_s = self.moments_s[0], self.moments_s[-1]
        period_s = (last_s - first_s) * (1 + 1 / max(1, len(self.moments_s) - 1))
        for k in range(self.repeats):
            for moment_s in self.moments_s:
                yield (moment_s - first_s + k * period_s) * self.time_scale


def weibull_shape(cv: float) -> float:
    """The Weibull shape k with CV² = Γ(1+2/k) ÷ Γ(1+1/k)² − 1, for CVs from 0.01 to 100."""

    def excess(shape: float) -> float:
        return math.lgamma(1 + 2 / shape) - 2 * math.lgamma(1 + 1 / shape) - math.log1p(cv * cv)

    low, high = 0.05, 200.0  # CV falls as the shape grows
    for _ in range(200):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if excess(middle) > 0 else (low, middle)
    return math.sqrt(low * high)


def _renewal(draw: Callable[[], np.ndarray]) -> Iterator[float]:
    now_s = 0.0
    while True:
        for gap_s in draw().tolist():
            now_s += gap_s
            yield now_s
