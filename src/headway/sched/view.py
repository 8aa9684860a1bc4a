"""What a policy sees: a read-only picture of the queues, and a ledger to plan with."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from headway.core import Sequence
from headway.kv import Ledger


@dataclass(slots=True)
class View:
    """The queues when a step is planned. Read, never write; the ledger alone may be spent.

    `waiting` stands in arrival order with preempted sequences at its front; `running` in order of admission.
    `ended` sequences have finished but are still held by the policy (static batching). Sequences with
    `num_in_flight` > 0 belong to a batch that has not returned: they must not be touched.
    """

    now_s: float
    step: int
    waiting: Collection[Sequence]
    running: list[Sequence]
    swapped: list[Sequence]
    ended: list[Sequence]
    ledger: Ledger

    @property
    def num_running(self) -> int:
        """Running sequences, counting the choices that are still to be forked."""
        return sum([seq.num_branches for seq in self.running])
