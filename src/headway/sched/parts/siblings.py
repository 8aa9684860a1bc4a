"""Prefixes on their way into the cache: who had better wait for whom."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from headway.core import Sequence


class PrefixesUnderway:
    """Prompts that are being computed now, found by their first block.

    A waiting request that shares more with one of them than the cache holds yet does better to wait a step:
    what the other computes need not be computed twice (as SGLang's in-batch prefix caching, ALGORITHMS §9).
    """

    def __init__(self, computing: Iterable[Sequence], block_size: int) -> None:
        self._size = block_size
        self._by_first: dict[tuple[str, tuple[int, ...]], list[Sequence]] = defaultdict(list)
        for seq in computing:
            self.add(seq)

    def add(self, seq: Sequence) -> None:
        """This sequence's prompt is being computed from this step on."""
        if seq.num_prompt > self._size:
            self._by_first[self._key(seq)].append(seq)

    def covers(self, seq: Sequence, num_cached: int) -> bool:
        """Whether somebody else is computing whole blocks that `seq` will need and the cache lacks.

        Never for a request that wants its prompt scored: it computes every row itself.
        """
        if seq.num_prompt <= self._size or not self._by_first or seq.request.params.prompt_logprobs is not None:
            return False
        for other in self._by_first.get(self._key(seq), ()):
            most = min(seq.num_tokens - 1, other.num_prompt) // self._size
            if num_cached // self._size < most and self._share(seq, other, num_cached):
                return True
        return False

    def _share(self, seq: Sequence, other: Sequence, num_cached: int) -> bool:
        """Whether the first block behind the cached ones is the same in both."""
        stop = (num_cached // self._size + 1) * self._size
        return seq.token_ids[:stop] == other.token_ids[:stop]

    def _key(self, seq: Sequence) -> tuple[str, tuple[int, ...]]:
        return seq.request.cache_salt, tuple(seq.token_ids[: self._size])
