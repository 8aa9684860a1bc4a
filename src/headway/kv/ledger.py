"""What-if accounting for one planning pass: what would fit, if somebody gave way."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from copy import copy
from dataclasses import replace

from headway.core import Sequence
from headway.kv.account import Account
from headway.kv.holdings import Holdings
from headway.kv.prefix import Hit, NoPrefixCache


class Ledger:
    """Says what fits; touches nothing but which prefixes are recent. Made anew for each pass, and free to backtrack.

    After any takes and give-backs, `num_free` is what `KVCache.num_free` will be once the plan is carried out
    in the order that `KVCache` states, whatever the order within each kind.

    A block that R tables hold and W of them write to costs min(W + 1, R) blocks: each writer but the last
    needs a copy, unless somebody goes on reading. Everything else is sums.
    """

    def __init__(self, kv: Holdings) -> None:
        self.block_size = kv.block_size
        self._kv = kv
        self._tables = kv.tables
        self._block_refs = kv.pool.refs
        self._cached = kv.prefix.blocks
        self._free = kv.num_free
        self._host_free = kv.num_host_free
        self._num_taken = 0
        self._taken: dict[str, int] = {}
        self._accounts: dict[str, Account] = {}
        self.gone: set[str] = set()  # whose tables were given back whole
        self._swapped_out: dict[str, set[tuple[str, int]]] = {}  # copies: who leaves together shares them
        self._hits: dict[str, Hit] = {}
        self._refs: dict[int, int] = {}  # tables that will hold a block, where that differs from now
        self._writers: dict[int, int] = {}

    @property
    def num_free(self) -> int:
        """Blocks that are still to be had."""
        return self._free

    @property
    def num_blocks(self) -> int:
        return self._kv.num_blocks

    @property
    def num_taken(self) -> int:
        """Tokens taken in this pass, by all sequences."""
        return self._num_taken

    def blocks_for(self, num_tokens: int) -> int:
        """Blocks that hold `num_tokens` tokens."""
        return -(-num_tokens // self.block_size)

    @property
    def takes(self) -> Mapping[str, int]:
        """Tokens taken in this pass, by sequence id."""
        return self._taken

    def taken(self, seq: Sequence) -> int:
        """Tokens taken for this sequence in this pass."""
        return self._taken.get(seq.id, 0)

    def num_held(self, seq: Sequence) -> int:
        """Length that the sequence's block table will have."""
        if (account := self._accounts.get(seq.id)) is not None:
            return account.num_blocks
        return 0 if seq.id in self.gone else self._kv.num_held(seq.id)

    @property
    def finds_prefixes(self) -> bool:
        """Whether waiting for another sequence's blocks can pay: there is a prefix cache."""
        return not isinstance(self._kv.prefix, NoPrefixCache)

    def scratch(self) -> Ledger:
        """A second ledger that goes on from here: for a question whose answer may not be wanted."""
        other = copy(self)
        fields = vars(other)
        for name in ("_taken", "gone", "_swapped_out", "_refs", "_writers"):
            fields[name] = fields[name].copy()
        accounts = self._accounts.items()
        fields["_accounts"] = {seq_id: replace(account, written=[*account.written]) for seq_id, account in accounts}
        return other

    @property
    def books(self) -> Holdings:
        """Who holds what now, before this pass."""
        return self._kv

    def hit(self, seq: Sequence) -> Hit:
        """What the prefix cache holds of a sequence; looked up once per pass.

        A request that wants log probabilities of its prompt needs every row computed: it never hits.
        """
        hit = self._hits.get(seq.id)
        if hit is None:
            request = seq.request
            wants_rows = request.params.prompt_logprobs is not None
            hit = Hit.EMPTY if wants_rows else self._kv.match(seq.token_ids, request.cache_salt, seq)
            self._hits[seq.id] = hit
        return hit

    def num_pending(self, seq: Sequence) -> int:
        """Tokens known and neither computed nor, before an admission, found in the cache; takes do not lower it."""
        return len(seq.token_ids) - self._start(seq)

    def reservations(self) -> dict[str, int]:
        """Blocks promised by this pass, by sequence id: what `KVCache.reserve` is to be told."""
        return {seq_id: account.num_promised for seq_id, account in self._accounts.items() if account.num_promised}

    @property
    def movers(self) -> Collection[str]:
        """Sequences, by id, for which what was taken needs new blocks or copies; most decodes need neither."""
        return self._accounts.keys()

    def take(self, seq: Sequence, num_tokens: int, reserve: int | None = None) -> bool:
        """Take blocks for `num_tokens` more tokens; False, and nothing is changed, when they do not fit.

        A sequence without a table is admitted with its hit, which is pinned from then on. With `reserve` it
        is promised room for that many tokens in all.
        """
        seq_id = seq.id
        before = self._taken.get(seq_id, 0)
        table = self._tables.get(seq_id)
        if table is None or reserve is not None or seq_id in self._accounts or seq_id in self.gone:
            is_covered = False
        else:  # most decodes go into a block that the sequence holds alone
            size = self.block_size
            start = seq.num_computed + before
            position = start // size
            is_covered = (
                start % size + num_tokens <= size
                and position < len(block_ids := table.block_ids)
                and self._block_refs[block := block_ids[position]] == 1
                and block not in self._cached
            )
        if not is_covered and not self._take_more(seq, before, num_tokens, reserve):
            return False
        self._taken[seq_id] = before + num_tokens
        self._num_taken += num_tokens
        return True

    def take_decodes(self, seqs: Iterable[Sequence]) -> int:
        """Take a token for each of the first sequences that lack one, no more, and own the block that it goes into.

        Returns how many these are: up to the first that needs anything else, from `take`. The same as that for each of
        them, at half the cost.
        """
        tables, refs, cached, taken, size = self._tables, self._block_refs, self._cached, self._taken, self.block_size
        accounts, gone, num_before = self._accounts, self.gone, len(taken)
        for seq in seqs:
            seq_id, start = seq.id, seq.num_computed
            is_known = seq_id in taken or seq_id in accounts or seq_id in gone
            if is_known or len(seq.token_ids) - start != 1 or seq_id not in tables:
                break
            position, block_ids = start // size, tables[seq_id].block_ids
            if position >= len(block_ids) or refs[block := block_ids[position]] != 1 or block in cached:
                break
            taken[seq_id] = 1
        num = len(taken) - num_before
        self._num_taken += num
        return num

    def give_back(self, seq: Sequence, num_tokens: int | None = None) -> None:
        """Undo what this pass took, and free what a sequence with a table holds behind `num_tokens`; None frees all.

        Blocks that others hold stay taken. Given back whole, the sequence may be taken again, as an admission.
        """
        seq_id = seq.id
        self._num_taken -= self._taken.pop(seq_id, 0)
        if copies := self._swapped_out.pop(seq_id, None):
            self._host_free += len(copies.difference(*self._swapped_out.values()))
        if not self._has_table(seq_id):
            if seq_id in self._accounts:
                self._close(seq_id)
        elif num_tokens is None:
            self._open(seq)
            self._close(seq_id)
            self.gone.add(seq_id)
        else:
            self._trim(self._open(seq), num_tokens)

    def take_swap_in(self, seq: Sequence, num_tokens: int) -> bool:
        """Take blocks for all a swapped sequence has computed and `num_tokens` more; False when they do not fit."""
        if seq.id in self._accounts:
            return self.take(seq, num_tokens)
        base = [-1 - host_id for host_id in self._kv.swapped[seq.id]]  # where blocks will be, shared as they are there
        self._accounts[seq.id] = account = Account(base, seq.num_computed, len(base))
        for block in base:
            self._book(block, num_refs=1)
        if not self._grow(account, 0, num_tokens, None):
            self._close(seq.id)
            return False
        self._taken[seq.id] = num_tokens
        self._num_taken += num_tokens
        return True

    def give_back_swapped(self, *seqs: Sequence) -> bool:
        """Like `give_back`, into the host tier, where they share what they share here; all of them or, False, none."""
        leaving = [seq for seq in seqs if seq.id not in self._swapped_out]
        num_blocks = self._kv.num_shared(seq.id for seq in leaving)
        if any(seq.id in self.gone for seq in leaving) or num_blocks > self._host_free:
            return False
        for seq in leaving:
            self.give_back(seq)
            self._swapped_out[seq.id] = {(leaving[0].id, block) for block in self._tables[seq.id].block_ids}
        self._host_free -= num_blocks
        return True

    def _take_more(self, seq: Sequence, num_taken: int, num_tokens: int, reserve: int | None) -> bool:
        """Take blocks, through the sequence's account; False, and nothing is changed, when they do not fit."""
        if seq.id in self._swapped_out:
            return False
        is_new = seq.id not in self._accounts
        if self._grow(self._open(seq), num_taken, num_tokens, reserve):
            return True
        if is_new and not self._has_table(seq.id):
            self._close(seq.id)
        return False

    def _is_sole(self, block: int) -> bool:
        """Whether a referenced block can never have a second holder in this pass: nobody can hit it."""
        return block >= 0 and self._block_refs[block] == 1 and block not in self._cached

    def _has_table(self, seq_id: str) -> bool:
        return seq_id in self._tables and seq_id not in self.gone

    def _start(self, seq: Sequence) -> int:
        if (account := self._accounts.get(seq.id)) is not None:
            return account.start
        if seq.id in self.gone or not self._kv.holds(seq.id):
            return self.hit(seq).num_tokens
        return seq.num_computed

    def _open(self, seq: Sequence) -> Account:
        """The sequence's account; a new one says what holds without this pass, or after giving all back."""
        account = self._accounts.get(seq.id)
        if account is not None:
            return account
        if self._has_table(seq.id):
            table = self._tables[seq.id]
            account = Account(table.block_ids, seq.num_computed, len(table.block_ids), table.num_promised)
        else:
            assert seq.id not in self._kv.swapped, f"{seq.id} is swapped out: swap it in"
            hit = self.hit(seq)
            account = Account(hit.block_ids, hit.num_tokens, len(hit.block_ids))
            for block in hit.block_ids:
                self._book(block, num_refs=1)
        self._accounts[seq.id] = account
        return account

    def _grow(self, account: Account, num_taken: int, num_tokens: int, reserve: int | None) -> bool:
        """Add a take to the account, unless it does not fit: then nothing is changed."""
        start = account.start + num_taken
        stop = start + num_tokens
        was = account.num_blocks, account.num_promised, account.num_new
        touched = account.base[start // self.block_size : self.blocks_for(stop)] if num_tokens else ()
        written = [block for block in touched if not self._is_sole(block) and block not in account.written]
        for block in written:
            self._book(block, num_writers=1)
        account.num_blocks = max(account.num_blocks, self.blocks_for(stop))
        account.num_promised = max(account.num_promised, self.blocks_for(reserve or 0))
        self._free -= account.num_new - was[2]
        if self._free >= 0:
            account.written += written
            return True
        self._free += account.num_new - was[2]
        account.num_blocks, account.num_promised, _ = was
        for block in written:
            self._book(block, num_writers=-1)
        return False

    def _trim(self, account: Account, num_tokens: int) -> None:
        """Undo the account's takes and its promise, and let go of the blocks behind `num_tokens`."""
        self._free += account.num_new
        for block in account.written:
            self._book(block, num_writers=-1)
        account.written.clear()
        num_kept = min(self.blocks_for(num_tokens), len(account.base))
        for block in account.base[num_kept:]:
            self._book(block, num_refs=-1)
        account.base = account.base[:num_kept]
        account.start = min(account.start, num_tokens)
        account.num_blocks, account.num_promised = num_kept, 0

    def _close(self, seq_id: str) -> None:
        self._trim(self._accounts.pop(seq_id), 0)

    def _book(self, block: int, *, num_refs: int = 0, num_writers: int = 0) -> None:
        """A block gets more holders or more writers, or fewer: move the free count by what that costs."""
        refs = self._refs.get(block, self._kv.pool.refs[block] if block >= 0 else 0)
        writers = self._writers.get(block, 0)
        self._refs[block], self._writers[block] = refs + num_refs, writers + num_writers
        self._free += min(writers + 1, refs) - min(writers + num_writers + 1, refs + num_refs)
