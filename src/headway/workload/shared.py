"""What prompts have in common, as names of blocks: equal ids stand for equal tokens."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

_MASK = (1 << 64) - 1


def mix(*words: int) -> int:
    """A well-spread number below 2⁶³ made of `words`, the same everywhere (SplitMix64, Steele et al. 2014)."""
    state = 0
    for word in words:
        state = (state * 0x9E3779B97F4A7C15 + word + 0x9E3779B97F4A7C15) & _MASK
        state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & _MASK
        state ^= state >> 31
    return state >> 1


def named(name: str) -> int:
    """A word for `mix` from a name."""
    return zlib.crc32(name.encode())


def context_ids(context: int, start: int, stop: int) -> tuple[int, ...]:
    """Ids of blocks [start, stop) of the endless text called `context`."""
    return tuple(mix(context, block) for block in range(start, stop))


@dataclass(frozen=True, slots=True, kw_only=True)
class SystemPrompts:
    """Texts that many requests begin with: number k is used with probability ∝ (k+1)^−`zipf`.

    `blocks` holds each one's length in whole blocks. A share `share` of the requests has one.
    """

    origin: int
    blocks: Sequence[int]
    zipf: float
    share: float

    def draw(self, rng: np.random.Generator) -> tuple[int, ...]:
        """The blocks of one, empty for a request without."""
        chance, place = rng.random(2)
        if chance >= self.share:
            return ()
        cumulative = np.cumsum(np.arange(1, len(self.blocks) + 1) ** -self.zipf)
        which = int(np.searchsorted(cumulative, place * cumulative[-1], side="right"))
        return context_ids(mix(self.origin, which), 0, self.blocks[which])
