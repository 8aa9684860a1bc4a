"""The host tier: room for the blocks of swapped sequences."""

from __future__ import annotations

import sys
from collections import Counter, deque
from collections.abc import Iterable


class HostTier:
    """Host block ids, handed out from 0 up; freed ones are used again first.

    With a limit, every id is below it. Without one (None), the executor grows its host memory as ids rise.
    Sequences that left together share their common blocks here, too: a block is free when all gave it back.
    """

    def __init__(self, limit: int | None) -> None:
        self._limit = sys.maxsize if limit is None else limit
        self._free: deque[int] = deque()
        self._num_made = 0
        self._refs: Counter[int] = Counter()

    @property
    def num_free(self) -> int:
        """Blocks that can still be taken; astronomically many without a limit."""
        return self._limit - self.num_used

    @property
    def num_used(self) -> int:
        return self._num_made - len(self._free)

    def take(self, num: int) -> list[int]:
        """`num` host blocks. The caller made sure that they exist."""
        assert num <= self.num_free, f"{num} host blocks wanted, {self.num_free} free"
        again = [self._free.popleft() for _ in range(min(num, len(self._free)))]
        fresh = range(self._num_made, self._num_made + num - len(again))
        self._num_made += len(fresh)
        host_ids = [*again, *fresh]
        self._refs.update(host_ids)
        return host_ids

    def ref(self, host_ids: Iterable[int]) -> None:
        """Count one more holder of each block."""
        self._refs.update(host_ids)

    def give_back(self, host_ids: Iterable[int]) -> None:
        """Count one holder less of each block; those without any left are free again."""
        for host_id in host_ids:
            self._refs[host_id] -= 1
            if not self._refs[host_id]:
                del self._refs[host_id]
                self._free.append(host_id)

    def check(self, used: Iterable[int]) -> None:
        """Every id handed out is either free, once, or among `used`, as often as it has holders."""
        assert Counter(used) == self._refs, "host tier: holders and tables disagree"
        ids = sorted([*self._free, *self._refs])
        assert ids == list(range(self._num_made)), "host tier: free + used are not the ids handed out"
        assert self.num_free >= 0, "host tier: more blocks than the limit"
