"""Who holds which blocks: the books of the KV cache, for reading."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from headway.kv.host import HostTier
from headway.kv.pool import BlockPool
from headway.kv.prefix import Hit, PrefixCache, Trail


@dataclass(slots=True, eq=False)
class Table:
    """One sequence's blocks on the device, in the order of its tokens.

    `num_promised` blocks are its to hold before long, whether it does yet or not; 0 promises nothing.
    """

    block_ids: list[int]
    trail: Trail
    num_promised: int = 0

    @property
    def num_owed(self) -> int:
        """Blocks promised and not held yet."""
        return max(0, self.num_promised - len(self.block_ids))


@dataclass(slots=True)
class Stats:
    """Counts since the start. A hit is counted at admission, after a preemption too."""

    num_admitted: int = 0
    num_hit_tokens: int = 0
    num_evicted: int = 0  # blocks
    num_loosened: int = 0  # blocks that lost their last holder, kept as cache or not
    num_copied: int = 0  # blocks, for copy-on-write
    num_swapped_out: int = 0  # blocks
    num_swapped_in: int = 0  # blocks


class Holdings:
    """Everything that a planner may ask about memory. Reading it changes nothing; `KVCache` writes.

    A block of the device is free, referenced by tables, or idle: cached, and evicted when it is needed.
    `tables` and `swapped` (host blocks) are keyed by sequence id, and no id is in both.
    """

    def __init__(self, num_blocks: int, block_size: int, prefix: PrefixCache, num_host_blocks: int | None = 0) -> None:
        assert block_size >= 1, f"a block of {block_size} slots holds nothing"
        self.block_size = block_size
        self.pool = BlockPool(num_blocks)
        self.prefix = prefix
        self.host = HostTier(num_host_blocks)
        self.tables: dict[str, Table] = {}
        self.swapped: dict[str, list[int]] = {}
        self.stats = Stats()
        self._num_owed = 0

    @property
    def num_blocks(self) -> int:
        return self.pool.num_blocks

    @property
    def num_free(self) -> int:
        """Blocks that can be given to anyone: free ones and idle ones, less those owed to promises."""
        return self.pool.num_free + self.prefix.num_idle - self._num_owed

    @property
    def num_cached(self) -> int:
        """Idle blocks: cached, referenced by nobody."""
        return self.prefix.num_idle

    @property
    def num_host_free(self) -> int:
        """Blocks left in the host tier; astronomically many when it has no limit."""
        return self.host.num_free

    def blocks_for(self, num_tokens: int) -> int:
        """Blocks that hold `num_tokens` tokens."""
        return -(-num_tokens // self.block_size)

    def match(self, tokens: Sequence[int], salt: str, owner: object | None = None) -> Hit:
        """What the prefix cache holds of these tokens but for the last, which is always left to compute.

        Good until blocks are next taken: admit it before that, or match again, cheaply with the `owner` of the tokens.
        """
        if len(tokens) % self.block_size == 0:  # else the last is in no whole block: spare the copy
            tokens = tokens[:-1]
        return self.prefix.match(tokens, salt, owner)

    def holds(self, seq_id: str) -> bool:
        """Whether the sequence has a table here, or blocks in the host tier."""
        return seq_id in self.tables or seq_id in self.swapped

    def num_held(self, seq_id: str) -> int:
        """Length of the sequence's block table; 0 without one."""
        table = self.tables.get(seq_id)
        return len(table.block_ids) if table else 0

    def num_private(self, seq_id: str) -> int:
        """Blocks that the sequence alone holds: what giving it up would free."""
        return sum(self.pool.refs[block] == 1 for block in self.block_table(seq_id)) if seq_id in self.tables else 0

    def num_shared(self, seq_ids: Iterable[str]) -> int:
        """Blocks that sequences hold together, each counted once, on the device or in the host tier."""
        lists = (self.swapped[seq_id] if seq_id in self.swapped else self.block_table(seq_id) for seq_id in seq_ids)
        return len(set().union(*lists))

    def block_table(self, seq_id: str) -> list[int]:
        """The sequence's live block table: read it, never write."""
        return self.tables[seq_id].block_ids

    def can_swap_out(self, seq_id: str) -> bool:
        """Whether the host tier has room for all the blocks of this running sequence."""
        return len(self.tables[seq_id].block_ids) <= self.host.num_free

    def check(self) -> None:
        """Pool, tables, prefix cache, host tier and promises add up; says which equation fails."""
        self.pool.check()
        self.prefix.check()
        held = Counter(block for table in self.tables.values() for block in table.block_ids)
        num_idle = 0
        for block in self.pool.taken:
            num_refs, is_cached = self.pool.refs[block], self.prefix.holds(block)
            assert held.get(block, 0) == num_refs, f"block {block}: {num_refs} references, but in {held[block]} tables"
            assert num_refs or is_cached, f"block {block} is lost"
            num_idle += is_cached and not num_refs
        cached = self.prefix.blocks
        for block in self.pool.free:
            assert block not in held, f"block {block} is free, but in a table"
            assert block not in cached, f"block {block} is free and cached"
        assert num_idle == self.prefix.num_idle, f"{num_idle} cached blocks unreferenced, {self.num_cached} idle"
        assert self._num_owed == sum(table.num_owed for table in self.tables.values()), "promises do not add up"
        assert self.num_free >= 0, f"promised {-self.num_free} blocks more than there are"
        assert not self.tables.keys() & self.swapped.keys(), "a sequence is on the device and in the host tier"
        self.host.check(block for host_ids in self.swapped.values() for block in host_ids)
        for seq_id, table in self.tables.items():
            assert len(set(table.block_ids)) == len(table.block_ids), f"{seq_id} holds a block twice"
            assert table.trail.num_blocks <= len(table.block_ids), f"{seq_id} published more than it holds"
