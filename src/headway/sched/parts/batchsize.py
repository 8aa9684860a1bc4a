"""How many sequences to run at once: by memory, and by latency (arXiv 2503.05248; ALGORITHMS §13)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist

_FORGETTING = 0.95


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """Limits of a batch size, the least width of a search interval, and by how much it is relaxed."""

    least: int
    most: int
    width: int = 16
    slack: int = 4

    def clamp(self, size: float) -> float:
        """`size` within the limits."""
        return min(max(size, self.least), self.most)


class LatencySearch:
    """Noisy binary search for the batch size at which a decode takes `target` (Alg. 2). Times in one unit, any.

    The interval [low, high] narrows towards the measured batch size on the side that the latency points to,
    and gives way a little on the other, so that it follows a plant that changes.
    """

    def __init__(self, bounds: Bounds, target: float, deadband: float) -> None:
        self._bounds = bounds
        self._target = target
        self._deadband = deadband
        self.low: float = bounds.least
        self.high: float = bounds.most

    def update(self, latency: float, batch_size: float) -> int:
        """The next batch size, after a window with this mean latency at this mean batch size."""
        width, slack = self._bounds.width, self._bounds.slack
        low, high = self.low, self.high
        if latency > self._target + self._deadband:
            low, high = low - slack, max(batch_size, low + width)
        elif latency < self._target - self._deadband:
            low, high = min(batch_size, high - width), high + slack
        else:
            low, high = batch_size - width / 2, batch_size + width / 2
        self.low, self.high = self._bounds.clamp(low), self._bounds.clamp(high)
        return math.floor((self.low + self.high) / 2)


def safety_tokens(capacity: float, mean: float, variance: float, overflow: float) -> float:
    """Tokens to keep free so that sequences of that mean and variance overflow with probability `overflow` at most.

    By the central limit theorem b of them hold bμ ± √b·σ: the buffer is θσ√b at the b that just fits.
    """
    spread = NormalDist().inv_cdf(1.0 - overflow) * math.sqrt(variance)
    root = (math.sqrt(spread * spread + 4.0 * mean * capacity) - spread) / (2.0 * mean)
    return max(0.0, spread * root)


def memory_batch(capacity: float, safety: float, mean_length: float) -> int:
    """Sequences of that mean length that fit, with a safety buffer (Alg. 1). All in tokens."""
    return math.floor((capacity - safety) / mean_length)


class RunningMean:
    """Mean and variance of the recent past: each value counts 0.95 times the one after it."""

    def __init__(self) -> None:
        self._weight = 0.0
        self._sum = 0.0
        self._squares = 0.0

    def add(self, value: float) -> None:
        """Learn a value."""
        self._weight = _FORGETTING * self._weight + 1.0
        self._sum = _FORGETTING * self._sum + value
        self._squares = _FORGETTING * self._squares + value * value

    @property
    def is_empty(self) -> bool:
        """Whether nothing was learnt yet."""
        return self._weight == 0.0

    @property
    def mean(self) -> float:
        return self._sum / self._weight

    @property
    def variance(self) -> float:
        return max(0.0, self._squares / self._weight - self.mean**2)


class LengthEstimate:
    """Mean and variance of prompt + output. Until an output has ended, max_output stands for it."""

    def __init__(self) -> None:
        self._prompts = RunningMean()
        self._promised = RunningMean()
        self._outputs = RunningMean()

    def arrived(self, num_prompt: int, max_output: int) -> None:
        """A request came."""
        self._prompts.add(num_prompt)
        self._promised.add(max_output)

    def ended(self, num_output: float) -> None:
        """An output came to its end by itself."""
        self._outputs.add(num_output)

    @property
    def total(self) -> tuple[float, float]:
        """Mean and variance of a sequence's tokens; asked only once a request came."""
        outputs = self._promised if self._outputs.is_empty else self._outputs
        return self._prompts.mean + outputs.mean, self._prompts.variance + outputs.variance
