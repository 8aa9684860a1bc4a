"""Admission before memory runs out: a sequence enters when the predicted peak still fits."""

from __future__ import annotations

from collections.abc import Iterable

from headway.core import Sequence
from headway.sched.parts.lengths import OutputLengths
from headway.sched.parts.peak import peak_tokens


class PeakGate:
    """Lets sequences in while those inside are expected to fit, with probability 1 - `overflow`, to their ends.

    A prefix that a sequence found in the cache counts for the one that computed it. The first sequence is
    always let in: the pool holds any one of them.
    """

    def __init__(
        self, lengths: OutputLengths, inside: Iterable[Sequence], capacity_tokens: float, overflow: float
    ) -> None:
        self._lengths = lengths
        self._capacity = capacity_tokens
        self._overflow = overflow
        self._entries: list[tuple[float, float, float]] = []
        self._worst = 0.0
        for seq in inside:
            self.add(seq)

    def admits(self, seq: Sequence) -> bool:
        """Whether the peak with this sequence too stays within the capacity."""
        if not self._entries or self._worst + _worst(seq) <= self._capacity:
            return True
        return peak_tokens([*self._entries, self._entry(seq)], self._overflow) <= self._capacity

    def add(self, seq: Sequence) -> None:
        """Count a sequence that is inside from now on."""
        self._entries.append(self._entry(seq))
        self._worst += _worst(seq)

    def _entry(self, seq: Sequence) -> tuple[float, float, float]:
        mean, variance = self._lengths.remaining(seq)
        branches = seq.num_branches
        return float(seq.num_tokens - seq.num_cached), mean * branches, variance * branches


def _worst(seq: Sequence) -> float:
    """Tokens that it holds if it goes to its very end."""
    return float(seq.num_prompt + seq.request.max_output * seq.num_branches)
