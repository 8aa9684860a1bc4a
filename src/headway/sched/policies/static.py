"""Request-level batching as in FasterTransformer: a batch stays as it is until its last member ends (ALGORITHMS §1)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from headway.core import Sequence, StepPlan
from headway.sched.fill import Budget, admit
from headway.sched.params import at_least, between, param
from headway.sched.parts.promises import possible, promise, run_whole, too_large, too_many
from headway.sched.policy import Axes, PlanLimits, Policy
from headway.sched.view import View


class Variant(StrEnum):
    """What becomes of rows that have ended before their batch."""

    ORIGINAL = "original"
    NO_WASTE = "no_waste"
    EARLY_RETURN = "early_return"


@dataclass(frozen=True, slots=True, kw_only=True)
class StaticParams:
    """Parameters of `static`."""

    max_batch_size: int = param(8, "most rows of a batch")
    variant: Variant = param(
        Variant.ORIGINAL,
        "original: prompts are padded, ended rows go on being computed, all return together; "
        "no_waste: ended rows cost nothing, but hold their memory to the end; early_return: they free it and return",
    )
    batch_timeout: float = param(0.0, "seconds that the first in the queue waits for a batch to fill up")

    def __post_init__(self) -> None:
        """Check the bounds."""
        at_least("max_batch_size", self.max_batch_size, 1)
        between("batch_timeout", self.batch_timeout, 0.0, 60.0)


class Static(Policy):
    """One batch at a time; every row reserves what the longest of its batch may need."""

    Params = StaticParams
    axes = Axes(
        order="arrival",
        sharing="one batch, unchanged from its start to its end",
        reservation="the largest prompt + max_tokens of the batch, for every row",
        shortage="cannot happen; nobody joins before the batch has ended",
    )
    source = "FasterTransformer; vidur and sarathi-serve for the variants"
    refuses = True

    def __init__(self, params: StaticParams) -> None:
        self._params = params

    def limits(self) -> PlanLimits:
        """Rows of a batch; there is no token budget."""
        return PlanLimits(max_seqs=self._params.max_batch_size)

    def plan(self, view: View) -> StepPlan:
        """Every row of the batch again; a new batch only when there is none."""
        plan = StepPlan()
        if view.running:
            run_whole(view, plan, view.running)
            if self._params.variant is Variant.ORIGINAL:
                plan.wasted = list(view.ended)
        elif not view.ended:
            self._gather(view, plan)
        if self._params.variant is Variant.ORIGINAL:
            _pad(plan)
        return plan

    def let_go(self, ended: list[Sequence], running: list[Sequence]) -> list[Sequence]:
        """All at once when the last row has ended; one by one with `early_return`."""
        if self._params.variant is Variant.EARLY_RETURN or not running:
            return ended
        return []

    def _gather(self, view: View, plan: StepPlan) -> None:
        """A batch of the first in the queue, as many as fit when each holds as much as the longest.

        One that more could join waits until its first has waited `batch_timeout`.
        """
        max_batch_size = self._params.max_batch_size
        batch: list[Sequence] = []
        num_rows, longest = 0, 0
        for seq in possible(plan, view.waiting, lambda seq: self._obstacle(view, seq)):
            num_rows += seq.num_branches
            row_blocks = view.ledger.blocks_for(max(longest, seq.max_total))
            if num_rows > max_batch_size or num_rows * row_blocks > view.ledger.num_free:
                break
            longest = max(longest, seq.max_total)
            batch.append(seq)
        else:
            if num_rows < max_batch_size and batch and view.now_s < self._give_up_s(batch[0]):
                return
        admit(
            view,
            plan,
            Budget.of(view, None, max_batch_size),
            batch,
            chunk=lambda seq, _: view.ledger.num_pending(seq),
            reserve=lambda seq: promise(view, seq, longest),
        )
        assert len(plan.grants) == len(batch), "a row of a new batch found no room, though all were counted"

    def _give_up_s(self, first: Sequence) -> float:
        return first.request.arrival_s + self._params.batch_timeout

    def _obstacle(self, view: View, seq: Sequence) -> str | None:
        num_blocks = seq.num_branches * view.ledger.blocks_for(seq.max_total)
        return too_many(seq, self._params.max_batch_size, "max_batch_size") or too_large(view, seq, num_blocks)


def _pad(plan: StepPlan) -> None:
    """Every row computes as many tokens as the longest: prompts in a batch's first step."""
    longest = max((grant.num_tokens for grant in plan.grants), default=0)
    for grant in plan.grants:
        grant.padding = longest - grant.num_tokens
