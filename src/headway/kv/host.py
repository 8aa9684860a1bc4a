"""The host tier: room for the blocks of swapped sequences."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterable


class HostTier:
    """Host block ids, handed out from 0 up; freed ones are used again first.

    With a limit, every id is below it. Without one (None), the executor grows its host memory as ids rise.
    """

    def __init__(self, limit: int | None) -> None:
        self._limit = sys.maxsize if limit is None else limit
        self._free: deque[int] = deque()
        self._num_made = 0

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
        return [*again, *fresh]

    def give_back(self, host_ids: Iterable[int]) -> None:
        """Make host blocks free again."""
        self._free.extend(host_ids)

    def check(self, used: Iterable[int]) -> None:
        """Every id handed out is free, or among `used`, exactly once."""
        ids = sorted([*self._free, *used])
        assert ids == list(range(self._num_made)), "host tier: free + used are not the ids handed out"
        assert self.num_free >= 0, "host tier: more blocks than the limit"
