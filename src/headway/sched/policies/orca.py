"""Orca: iteration-level scheduling in arrival order, with memory promised to the end (ALGORITHMS §2)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from headway.core import Sequence, StepPlan
from headway.sched.fill import Budget, admit
from headway.sched.params import at_least, param
from headway.sched.parts.promises import possible, promise, run_whole, too_large, too_many
from headway.sched.policy import Axes, PlanLimits, Policy
from headway.sched.view import View


class Reserve(StrEnum):
    """How many slots an admission reserves."""

    ORACLE = "oracle"
    MAX = "max"
    POW2 = "pow2"


@dataclass(frozen=True, slots=True, kw_only=True)
class OrcaParams:
    """Parameters of `orca`."""

    max_batch_size: int = param(32, "most sequences in one batch")
    num_slots: int | None = param(None, "tokens that may be reserved in all; none = num_blocks × block_size")
    num_workers: int = param(1, "batches in flight at once: the stages of the pipeline")
    reserve: Reserve = param(
        Reserve.ORACLE,
        "oracle: prompt + max_tokens; pow2: prompt + max_tokens rounded up to a power of two; max: max_model_len",
    )
    max_model_len: int = param(2048, "slots that reserve=max takes for each sequence; never more than there are")

    def __post_init__(self) -> None:
        """Check the bounds."""
        at_least("max_batch_size", self.max_batch_size, 1)
        at_least("num_workers", self.num_workers, 1)
        at_least("max_model_len", self.max_model_len, 1)
        if self.num_slots is not None:
            at_least("num_slots", self.num_slots, 1)


class Orca(Policy):
    """Whoever is not in flight runs, oldest first; the scan ends at the first that does not fit."""

    Params = OrcaParams
    axes = Axes(
        order="arrival",
        sharing="whole prompts and decodes in one batch of limited size",
        reservation="prompt + max_tokens (or more: reserve) in slots, to the end",
        shortage="cannot happen; the scan ends at the first that cannot reserve",
    )
    source = "Orca, OSDI'22, Algorithm 1"
    refuses = True
    overlaps = True

    def __init__(self, params: OrcaParams) -> None:
        self._params = params

    def limits(self) -> PlanLimits:
        """No token budget; a sequence longer than all slots can never reserve."""
        return PlanLimits(max_total=self._params.num_slots)

    def in_flight(self) -> int:
        """One batch for every stage."""
        return self._params.num_workers

    def plan(self, view: View) -> StepPlan:
        """Select: those admitted come before all others, for they came earlier."""
        plan = StepPlan()
        params = self._params
        rows = [seq for seq in view.running if not seq.num_in_flight][: params.max_batch_size]
        run_whole(view, plan, rows)
        admit(
            view,
            plan,
            Budget(num_seqs=params.max_batch_size - len(rows)),
            self._reservable(view, plan),
            chunk=lambda seq, _: view.ledger.num_pending(seq),
            reserve=lambda seq: promise(view, seq, self._slots(view, seq)),
        )
        return plan

    def _reservable(self, view: View, plan: StepPlan) -> Iterator[Sequence]:
        """The waiting ones up to the first whose slots would be too many."""
        num_slots = self._num_slots(view)
        num_reserved = sum(seq.num_branches * self._slots(view, seq) for seq in view.running)
        for seq in possible(plan, view.waiting, lambda seq: self._obstacle(view, seq)):
            num_reserved += seq.num_branches * self._slots(view, seq)
            if num_reserved > num_slots:
                return
            yield seq

    def _slots(self, view: View, seq: Sequence) -> int:
        """Slots that one choice reserves: never fewer than it may need, nor in excess of all there are."""
        request = seq.request
        wanted = request.max_total
        if self._params.reserve is Reserve.POW2:
            wanted = request.num_prompt + (1 << (request.max_output - 1).bit_length())
        elif self._params.reserve is Reserve.MAX:
            wanted = self._params.max_model_len
        ledger, num_choices = view.ledger, request.params.n
        most = min(self._num_slots(view) // num_choices, ledger.num_blocks // num_choices * ledger.block_size)
        return max(request.max_total, min(wanted, most))

    def _num_slots(self, view: View) -> int:
        most = view.ledger.num_blocks * view.ledger.block_size
        return most if self._params.num_slots is None else min(self._params.num_slots, most)

    def _obstacle(self, view: View, seq: Sequence) -> str | None:
        """Why a request can never be admitted, if so."""
        num_slots, wanted = self._num_slots(view), seq.num_branches * self._slots(view, seq)
        if wanted > num_slots:
            return (
                f"{seq.request.id} must reserve {wanted} slots, but there are {num_slots}: "
                "lower max_tokens or n, or raise num_slots and num_blocks"
            )
        num_blocks = seq.num_branches * view.ledger.blocks_for(self._slots(view, seq))
        return too_many(seq, self._params.max_batch_size, "max_batch_size") or too_large(view, seq, num_blocks)
