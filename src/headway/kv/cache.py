"""The KV cache as the scheduler uses it: sequences in, block ids out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from headway.core import BlockPair
from headway.kv.holdings import Holdings, Table
from headway.kv.prefix import Hit, Trail


class KVCache(Holdings):
    """Block tables of all sequences, shared where tokens are equal, copied before they are written.

    Within a step: first `release`, `trim` and `swap_out`, which make room; then `admit`, which pins the hits;
    then `swap_in`, `reserve` and `extend`, which take blocks and may evict whatever is not pinned. What a
    `Ledger` granted always succeeds in this order. `num_host_blocks` None means a host tier without limit.
    """

    def admit(self, seq_id: str, hit: Hit, num_prefill: int = 0) -> None:
        """Open a table that starts with the blocks of `hit`, pinned from now on; `num_prefill` tokens are no output."""
        assert not self.holds(seq_id), f"{seq_id} has blocks already"
        assert all(map(self.prefix.holds, hit.block_ids)), f"{seq_id}: the hit is stale"
        self.prefix.use([block for block in hit.block_ids if not self.pool.refs[block]])
        self.pool.ref(hit.block_ids)
        self.tables[seq_id] = Table(
            list(hit.block_ids), Trail(len(hit.block_ids), num_prefill=num_prefill // self.block_size)
        )
        self.stats.num_admitted += 1
        self.stats.num_hit_tokens += hit.num_tokens

    def reserve(self, seq_id: str, num_blocks: int) -> None:
        """Promise the sequence at least `num_blocks` blocks in all, until it is released, trimmed or swapped out."""
        table = self.tables[seq_id]
        self._num_owed -= table.num_owed
        table.num_promised = max(table.num_promised, num_blocks)
        self._num_owed += table.num_owed
        assert self.num_free >= 0, f"{seq_id}: {num_blocks} blocks promised, {-self.num_free} too many"

    def extend(self, seq_id: str, start: int, stop: int) -> list[BlockPair]:
        """Make room for the tokens [start, stop) of a sequence in blocks that nobody else reads.

        New blocks follow the table's end, so nothing below `start` may be missing. Returns the copies to do
        first: a block that is shared stays with the others, and this sequence goes on with a copy.
        """
        table = self.tables[seq_id]
        block_ids = table.block_ids
        size = self.block_size
        if start == stop:
            return []
        assert table.trail.num_blocks * size <= start <= len(block_ids) * size, f"{seq_id}: cannot write from {start}"
        num_needed = -(-stop // size)
        copies = []
        for position in range(start // size, min(num_needed, len(block_ids))):
            block = block_ids[position]
            if self.pool.refs[block] > 1:
                copies.append((block, self._replace(table, position)))
            elif self.prefix.holds(block):  # after a trim into a published block
                self.pool.give_back(self.prefix.forget(block))
        if num_needed > len(block_ids):
            owed = table.num_owed
            block_ids += self._take(num_needed - len(block_ids))
            self._num_owed += table.num_owed - owed
        elif not copies:
            return []
        assert self.num_free >= 0, f"{seq_id} was extended into blocks that are promised to others"
        return copies

    def publish(self, seq_id: str, tokens: Sequence[int], num_computed: int, salt: str) -> None:
        """Put the whole blocks among the first `num_computed` tokens into the prefix cache; costs what is new.

        Where the cache has an equal block, the table may change to it; the duplicate is freed.
        """
        table = self.tables[seq_id]
        first, num_full = table.trail.num_blocks, num_computed // self.block_size
        if num_full <= first:
            return
        block_ids = table.block_ids
        canonical = self.prefix.insert(tokens, block_ids[:num_full], salt, table.trail)
        if canonical == block_ids[first:num_full]:
            return
        swaps = [
            (holder, at, own, other)
            for at, (own, other) in enumerate(zip(block_ids[first:num_full], canonical, strict=True), start=first)
            if own != other
            for holder in self._holders(table, at)
        ]
        for holder, at, _, other in swaps:
            holder.block_ids[at] = other
        self.prefix.use(list(dict.fromkeys(other for _, _, _, other in swaps if not self.pool.refs[other])))
        self.pool.ref(other for _, _, _, other in swaps)
        self._drop(own for _, _, own, _ in swaps)

    def unpublish(self, seq_id: str, num_tokens: int) -> None:
        """Take the blocks behind the first `num_tokens` tokens, as far as nobody else holds them, out of the cache.

        The sequence still holds them, and is to be released or trimmed next.
        """
        for block in reversed(self.tables[seq_id].block_ids[num_tokens // self.block_size :]):
            if self.pool.refs[block] == 1 and self.prefix.holds(block):
                self.pool.give_back(self.prefix.forget(block))

    def release(self, seq_id: str) -> None:
        """Drop everything that the sequence holds, on the device or in the host tier. Its tail is evicted first."""
        if (host_ids := self.swapped.pop(seq_id, None)) is not None:
            self.host.give_back(host_ids)
            return
        table = self.tables.pop(seq_id)
        self._num_owed -= table.num_owed
        self._drop(reversed(table.block_ids))

    def trim(self, seq_id: str, num_tokens: int) -> None:
        """Drop the blocks behind the first `num_tokens` tokens, and any promise. The next write may start there."""
        table = self.tables[seq_id]
        self._num_owed -= table.num_owed
        table.num_promised = 0
        num_kept = self.blocks_for(num_tokens)
        tail = table.block_ids[num_kept:]
        del table.block_ids[num_kept:]
        if num_tokens // self.block_size < table.trail.num_blocks:
            table.trail = table.trail.cut(num_tokens // self.block_size)
        self._drop(reversed(tail))

    def fork(self, parent_id: str, child_id: str) -> None:
        """Let a new sequence share all blocks of another, not its promise; whoever writes first gets a copy."""
        assert not self.holds(child_id), f"{child_id} has blocks already"
        table = self.tables[parent_id]
        self.pool.ref(table.block_ids)
        self.tables[child_id] = Table(list(table.block_ids), table.trail.copied())

    def split_promise(self, seq_ids: Sequence[str]) -> None:
        """Divide the first sequence's promise evenly among it and its forks, which it was made for.

        What they share makes room for the copies of their first writes, if nobody else takes it before.
        """
        parent = self.tables[seq_ids[0]]
        share = parent.num_promised // len(seq_ids)
        for seq_id in seq_ids:
            table = self.tables[seq_id]
            self._num_owed -= table.num_owed
            table.num_promised = share
            self._num_owed += table.num_owed

    def swap_out(self, *seq_ids: str) -> list[BlockPair]:
        """Move sequences to the host tier: (device, host) blocks to copy.

        What they share with each other is copied once and stays shared; what they share with others is copied.
        """
        copies: dict[int, int] = {}
        for seq_id in seq_ids:
            block_ids = self.tables[seq_id].block_ids
            self.host.ref(copies[block] for block in block_ids if block in copies)
            fresh = [block for block in block_ids if block not in copies]
            copies.update(zip(fresh, self.host.take(len(fresh)), strict=True))
        for seq_id in seq_ids:
            host_ids = [copies[block] for block in self.tables[seq_id].block_ids]
            self.release(seq_id)
            self.swapped[seq_id] = host_ids
        self.stats.num_swapped_out += len(copies)
        return list(copies.items())

    def swap_in(self, *seq_ids: str) -> list[BlockPair]:
        """Move sequences back: (host, device) blocks to copy. What they share with each other stays shared."""
        copies: dict[int, int] = {}
        for seq_id in seq_ids:
            host_ids = self.swapped.pop(seq_id)
            self.pool.ref(copies[host_id] for host_id in host_ids if host_id in copies)
            fresh = [host_id for host_id in host_ids if host_id not in copies]
            copies.update(zip(fresh, self._take(len(fresh)), strict=True))
            assert self.num_free >= 0, f"{seq_id} was swapped into blocks that are promised to others"
            self.host.give_back(host_ids)
            block_ids = [copies[host_id] for host_id in host_ids]
            self.tables[seq_id] = Table(block_ids, Trail())  # its copies are unknown to the prefix cache
        self.stats.num_swapped_in += len(copies)
        return list(copies.items())

    def forget_idle(self) -> None:
        """Empty the prefix cache of everything that no sequence uses."""
        idle = self.prefix.reset()
        self.pool.give_back(idle)
        self.stats.num_evicted += len(idle)

    def _holders(self, table: Table, at: int) -> list[Table]:
        """The tables that share this one's block there.

        They change together: with a block that is cached now behind another one, a sequence must hold that one, too.
        """
        block = table.block_ids[at]
        if self.pool.refs[block] == 1:
            return [table]
        return [other for other in self.tables.values() if block in other.block_ids[at : at + 1]]

    def _take(self, num: int) -> list[int]:
        short = num - self.pool.num_free
        if short > 0:
            evicted = self.prefix.evict(short)
            self.pool.give_back(evicted)
            self.stats.num_evicted += len(evicted)
        return self.pool.take(num)

    def _replace(self, table: Table, position: int) -> int:
        """Put a fresh block in the place of a shared one; the caller copies."""
        (copy,) = self._take(1)
        self.pool.unref([table.block_ids[position]])
        table.block_ids[position] = copy
        self.stats.num_copied += 1
        return copy

    def _drop(self, block_ids: Iterable[int]) -> None:
        """Give up references; what nobody else holds becomes idle where it is cached, else free."""
        loose = self.pool.unref(block_ids)
        self.stats.num_loosened += len(loose)
        known = self.prefix.blocks
        cached = [block for block in loose if block in known]
        self.prefix.idle(cached)
        if len(cached) < len(loose):
            self.pool.give_back([block for block in loose if block not in known])
