"""DeepSpeed-FastGen's Dynamic SplitFuse: one buffer, constant token budget (ALGORITHMS §8)."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain

from headway.core import Event, Preempted, Requeue, Sequence, SequenceFinished, StepPlan, TokenEmitted
from headway.sched.fill import Budget, grant, preempt
from headway.sched.params import at_least, param
from headway.sched.parts.promises import possible, too_long
from headway.sched.policy import Axes, PlanLimits, Policy
from headway.sched.view import View


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitFuseParams:
    """Parameters of `splitfuse`."""

    token_budget: int = param(768, "token budget of a step")
    max_num_seqs: int = param(512, "most sequences computed in a step; more may hold memory")

    def __post_init__(self) -> None:
        """Check the bounds."""
        at_least("token_budget", self.token_budget, 1)
        at_least("max_num_seqs", self.max_num_seqs, 1)


class SplitFuse(Policy):
    """Decodes, then prompts cut to fill the budget exactly; who loses its memory starts over at the end of the buffer.

    The buffer is not kept as one list: the view holds prompts in its order, and decodes return to its end each
    time that they ran, so that the order of their last tokens is theirs.
    """

    Params = SplitFuseParams
    axes = Axes(
        order="one buffer: who ran goes to its end",
        sharing="decodes, then prompts, up to one token budget",
        reservation="this step's tokens, when the whole prompt would fit",
        shortage="a decode sits out; when nothing runs, recompute the last in the buffer, from its end",
    )
    source = "DeepSpeed-MII ragged batching, arXiv 2401.08671"
    refuses = True

    def __init__(self, params: SplitFuseParams) -> None:
        self._params = params
        self._turns: dict[str, int] = {}  # of sequences that decode, by id: when they came to the buffer's end
        self._num_turns = 0

    def limits(self) -> PlanLimits:
        """Token budget and rows of a step."""
        return PlanLimits(max_tokens=self._params.token_budget, max_lanes=self._params.max_num_seqs)

    def plan(self, view: View) -> StepPlan:
        """Decodes, prompts; if that is nothing, the last with memory gives it up."""
        plan = StepPlan()
        budget = Budget(self._params.token_budget, self._params.max_num_seqs)
        decodes = sorted((seq for seq in view.running if seq.id in self._turns), key=lambda seq: self._turns[seq.id])
        prompts = [seq for seq in view.running if seq.id not in self._turns]
        self._decode(view, plan, budget, decodes)
        self._prefill(view, plan, budget, prompts)
        if not plan.grants:
            self._flush(view, plan, budget, [*prompts, *decodes])
        return plan

    def on_event(self, event: Event) -> None:
        """Keep the order in which sequences came to the buffer's end, for as long as they decode."""
        match event:
            case TokenEmitted():
                self._turns[event.seq_id] = self._num_turns
                self._num_turns += 1
            case SequenceFinished() | Preempted():
                self._turns.pop(event.seq_id, None)

    def _decode(self, view: View, plan: StepPlan, budget: Budget, decodes: list[Sequence]) -> None:
        """One token each, in the order of the buffer; who finds no free block is passed over."""
        for seq in decodes:
            if budget.num_seqs <= 0 or budget.num_tokens <= 0:
                return
            if view.ledger.take(seq, 1):
                grant(plan, budget, seq, 1)
                budget.num_seqs -= 1

    def _prefill(self, view: View, plan: StepPlan, budget: Budget, prompts: list[Sequence]) -> None:
        """Prompts in order, cut to the budget; the first whose rest would not fit into memory ends it."""
        waiting = possible(plan, view.waiting, lambda seq: too_long(view, seq))
        for seq in chain(prompts, waiting):
            if view.ledger.num_free <= 0 or budget.num_seqs <= 0 or budget.num_tokens <= 0:
                return
            if not self._take_piece(view, plan, budget, seq):
                return

    def _take_piece(self, view: View, plan: StepPlan, budget: Budget, seq: Sequence) -> bool:
        """Grant what the budget holds of a prompt, if memory has room for all of it; False if not."""
        wanted = view.ledger.num_pending(seq)
        size = min(wanted, budget.num_tokens)
        if size < wanted and not view.ledger.scratch().take(seq, wanted):
            return False
        if not view.ledger.take(seq, size):
            return False
        grant(plan, budget, seq, size)
        budget.num_seqs -= 1
        return True

    def _flush(self, view: View, plan: StepPlan, budget: Budget, holders: list[Sequence]) -> None:
        """Memory is full: the last in the buffer that holds some loses it, and starts over from the end.

        A prompt that alone holds memory needs no free block where all its blocks are there, so it goes on: it
        would only come back to the same place.
        """
        if not holders or (len(holders) == 1 and self._take_piece(view, plan, budget, holders[0])):
            return
        preempt(plan, view, holders[-1], requeue=Requeue.BACK)
