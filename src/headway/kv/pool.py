"""The blocks of one device: who is referenced how often, and which are free."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from itertools import compress
from operator import not_


class BlockPool:
    """Blocks 0 … num_blocks - 1, each of which is in one of three states.

        free ── take ──▶ referenced ── unref to 0 ──▶ loose ── give_back ──▶ free
                              ▲──────── ref ───────────┘

    A loose block belongs to whoever unreferenced it: it is kept as idle cache, or given back. Free blocks are
    taken in the order in which they were freed, so that equal histories give equal ids. `refs[block]` is the
    number of references: read it, never write.
    """

    def __init__(self, num_blocks: int) -> None:
        assert num_blocks >= 1, f"a pool of {num_blocks} blocks holds nothing"
        self.refs = [0] * num_blocks
        self._free = deque(range(num_blocks))
        self._is_free = bytearray(b"\x01" * num_blocks)

    @property
    def num_blocks(self) -> int:
        return len(self.refs)

    @property
    def num_free(self) -> int:
        return len(self._free)

    def take(self, num: int) -> list[int]:
        """Remove `num` blocks from the free ones; each has one reference now. The caller made sure that they exist."""
        assert num <= len(self._free), f"{num} blocks wanted, {len(self._free)} free"
        pop, refs, is_free = self._free.popleft, self.refs, self._is_free
        block_ids = [pop() for _ in range(num)]
        for block in block_ids:
            refs[block] = 1
            is_free[block] = 0
        return block_ids

    def ref(self, block_ids: Iterable[int]) -> None:
        """Count one more holder of each block; none of them may be free."""
        for block in block_ids:
            assert not self._is_free[block], f"block {block} is free and cannot be shared"
            self.refs[block] += 1

    def unref(self, block_ids: Iterable[int]) -> list[int]:
        """Count one holder less of each block. Returns those without any left, in the order given: they are loose."""
        refs, loose = self.refs, []
        for block in block_ids:
            left = refs[block] = refs[block] - 1
            assert left >= 0, f"block {block} has no reference to drop"
            if not left:
                loose.append(block)
        return loose

    def give_back(self, block_ids: Iterable[int]) -> None:
        """Make loose blocks free."""
        refs, is_free, add = self.refs, self._is_free, self._free.append
        for block in block_ids:
            assert not refs[block], f"block {block} is still referenced"
            assert not is_free[block], f"block {block} is free already"
            is_free[block] = 1
            add(block)

    def is_free(self, block: int) -> bool:
        """Whether the next `take` may return this block."""
        return bool(self._is_free[block])

    @property
    def free(self) -> Iterable[int]:
        """The free blocks, the first to be taken first."""
        return self._free

    @property
    def taken(self) -> list[int]:
        """All blocks that are not free, in order."""
        return list(compress(range(self.num_blocks), map(not_, self._is_free)))

    def check(self) -> None:
        """The free list has no block twice, and none with a reference."""
        free = set(self._free)
        assert len(free) == len(self._free), "a block is in the free list twice"
        assert min(self.refs) >= 0, f"block {self.refs.index(min(self.refs))} has {min(self.refs)} references"
        marked = set(compress(range(self.num_blocks), self._is_free))
        assert marked == free, f"block {min(marked ^ free)}: free list and free mark disagree"
        for block in compress(range(self.num_blocks), self.refs):
            assert block not in free, f"block {block} is free and has {self.refs[block]} references"
