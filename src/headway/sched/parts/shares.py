"""Shares of the KV blocks: what a tenant may hold at most, and what others leave for it."""

from __future__ import annotations

from collections import defaultdict
from typing import Self

from headway.core import Sequence
from headway.sched.view import View


class KvShares:
    """Decides whether a sequence may be admitted as far as its tenant's share of the blocks goes.

    *Most*: a tenant's admitted sequences, each at its longest, stay within `kv_most` of all blocks, so that it never
    holds more. One sequence is always let in. *Guaranteed*: beyond its own guarantee a tenant may take only what leaves
    the others who wait as much as they lack of theirs. The guarantee of a tenant that asks for nothing is lent; what
    was lent comes back as the borrowers end.
    """

    def __init__(self, view: View) -> None:
        ledger = self._ledger = view.ledger
        self._held: dict[str, int] = defaultdict(int)
        self._promised: dict[str, int] = defaultdict(int)
        self._wanted: dict[str, float] = {}
        for seq in (*view.running, *view.swapped, *view.ended):
            self._add(seq, ledger.num_held(seq))
        for seq in view.waiting:
            self._wanted[seq.request.tenant] = seq.request.kv_guaranteed * ledger.num_blocks
            if num_held := ledger.num_held(seq):
                self._add(seq, num_held)

    @classmethod
    def of(cls, view: View) -> Self | None:
        """The shares in this step; None where no request has any."""
        stated = any(seq.request.kv_most < 1.0 or seq.request.kv_guaranteed > 0.0 for seq in view.waiting)
        return cls(view) if stated else None

    def admits(self, seq: Sequence) -> bool:
        """Whether its tenant's share and the others' guarantees leave room for it."""
        request, ledger = seq.request, self._ledger
        tenant, num_blocks = request.tenant, ledger.num_blocks
        promised = self._promised[tenant]
        is_new = not ledger.num_held(seq)
        limit = int(request.kv_most * num_blocks) if request.kv_most < 1.0 else None
        if limit is not None and is_new and promised and promised + self._longest(seq) > limit:
            return False
        num_needed = -(-ledger.num_pending(seq) // ledger.block_size)
        if self._held[tenant] + num_needed <= request.kv_guaranteed * num_blocks:
            return True
        return ledger.num_free - num_needed >= self._lacking(tenant)

    def admit(self, seq: Sequence) -> None:
        """It was let in and has taken its blocks."""
        self._add(seq, self._ledger.num_held(seq))

    def _add(self, seq: Sequence, num_held: int) -> None:
        self._held[seq.request.tenant] += num_held
        self._promised[seq.request.tenant] += self._longest(seq)

    def _lacking(self, tenant: str) -> float:
        return sum(max(0.0, wanted - self._held[other]) for other, wanted in self._wanted.items() if other != tenant)

    def _longest(self, seq: Sequence) -> int:
        return -(-seq.request.max_total // self._ledger.block_size) * seq.num_branches
