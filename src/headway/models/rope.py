"""Rotary positions: which angle each pair of features turns by, and the published ways to stretch them.

A model trained for a short context is made to serve a long one by turning slower. Only the angles change, so an
executor needs to know none of this: it is given radians per position, one number for each pair.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from headway.errors import BadModelFile
from headway.kernels import rope_inverse_frequencies

RopePairs = Literal["interleaved", "half_split"]
"""Which features of a head turn together: (2 i, 2 i + 1), or (i, i + half a head)."""

Array = NDArray[np.float64]

_MOST = 1e8  # a larger number in a file is damage


@dataclass(frozen=True, slots=True)
class LinearRope:
    """Every angle divided by `factor` (position interpolation, arXiv 2306.15595)."""

    factor: float

    def __post_init__(self) -> None:
        _check("factor", self.factor)

    def stretch(self, frequencies_F: Array) -> Array:
        """Radians per position after scaling."""
        return frequencies_F / self.factor


@dataclass(frozen=True, slots=True)
class Llama3Rope:
    """Slow angles divided by `factor`, fast ones kept, those between blended (Llama 3.1, arXiv 2407.21783).

    An angle is fast when it turns more than `high_freq_factor` times within the original context, slow when it turns
    less than `low_freq_factor` times.
    """

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_context_length: int

    def __post_init__(self) -> None:
        _check("factor", self.factor)
        _check("low_freq_factor", self.low_freq_factor)
        _check("high_freq_factor", self.high_freq_factor)
        _check("original_max_position_embeddings", self.original_context_length)
        if self.low_freq_factor >= self.high_freq_factor:
            raise BadModelFile(
                f"RoPE scaling: low_freq_factor {self.low_freq_factor} is not below "
                f"high_freq_factor {self.high_freq_factor}"
            )

    def stretch(self, frequencies_F: Array) -> Array:
        """Radians per position after scaling."""
        turns_F = frequencies_F * self.original_context_length / (2 * math.pi)
        share_F = (turns_F - self.low_freq_factor) / (self.high_freq_factor - self.low_freq_factor)
        kept_F = np.clip(share_F, 0.0, 1.0)
        return frequencies_F * (kept_F + (1 - kept_F) / self.factor)


@dataclass(frozen=True, slots=True)
class DividedRope:
    """Each angle divided by a number of its own: how GGUF files write Llama 3's scaling, worked out beforehand."""

    divisors: tuple[float, ...]

    def __post_init__(self) -> None:
        for divisor in self.divisors:
            _check("a divisor", divisor)

    def stretch(self, frequencies_F: Array) -> Array:
        """Radians per position after scaling."""
        if len(self.divisors) != len(frequencies_F):
            raise BadModelFile(
                f"RoPE scaling has {len(self.divisors)} divisors for {len(frequencies_F)} pairs of features"
            )
        return frequencies_F / np.array(self.divisors, np.float64)


RopeScaling = LinearRope | Llama3Rope | DividedRope


def rope_frequencies(head_dim: int, base: float, scaling: RopeScaling | None) -> Array:
    """Radians per position of each of the head_dim / 2 pairs, scaling included."""
    frequencies_F = rope_inverse_frequencies(head_dim, base)
    return frequencies_F if scaling is None else scaling.stretch(frequencies_F)


def _check(name: str, value: float) -> None:
    if not 0.0 < value <= _MOST:  # written so that NaN is refused too
        raise BadModelFile(f"RoPE scaling: {name} is {value}, allowed is above 0 and at most {_MOST:.0f}")
