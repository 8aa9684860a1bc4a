"""LMDeploy TurboMind: a persistent batch of slots, the older first in memory (ALGORITHMS §12)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from headway.core import Grant, Place, Sequence, StepPlan
from headway.sched.fill import preempt
from headway.sched.params import at_least, param
from headway.sched.parts.promises import possible, too_long, too_many
from headway.sched.policy import Axes, PlanLimits, Policy
from headway.sched.view import View


@dataclass(frozen=True, slots=True, kw_only=True)
class LmdeployParams:
    """Parameters of `lmdeploy`."""

    max_batch_size: int = param(128, "slots: a request keeps its own until it ends, with memory or without")
    max_prefill_token_num: int = param(8192, "most prompt tokens of a step; decodes are not counted")

    def __post_init__(self) -> None:
        """Check the bounds."""
        at_least("max_batch_size", self.max_batch_size, 1)
        at_least("max_prefill_token_num", self.max_prefill_token_num, 1)


class Lmdeploy(Policy):
    """Slots by age: who lacks memory takes it from the youngest, or sits out and keeps what it has."""

    Params = LmdeployParams
    axes = Axes(
        order="arrival; in memory the older goes first, and a smaller one may pass who sits out",
        sharing="every decode, and prompts up to a prefill budget",
        reservation="this step's tokens",
        shortage="recompute younger ones, from the end; who cannot be served keeps its memory and waits",
    )
    source = "LMDeploy TurboMind, SequenceManager"
    refuses = True

    def __init__(self, params: LmdeployParams) -> None:
        self._params = params

    def limits(self) -> PlanLimits:
        """Slots, and the prefill budget beside a decode in each other slot."""
        params = self._params
        most = params.max_prefill_token_num + params.max_batch_size - 1
        return PlanLimits(max_tokens=most, max_seqs=params.max_batch_size)

    def plan(self, view: View) -> StepPlan:
        """Serve the slots in order of age, until those that gave their memory away."""
        plan = StepPlan()
        left = self._params.max_prefill_token_num
        slots = sorted(self._slots(view, plan), key=lambda seq: (seq.rank, seq.choice))
        at, last = 0, len(slots)
        while at < last:
            seq = slots[at]
            at += 1
            is_prompt = not seq.is_decoding
            size = min(view.ledger.num_pending(seq), left) if is_prompt else 1
            if size <= 0:
                continue
            if not view.ledger.take(seq, size):
                victims = _victims(view, seq, size, slots[at:last])
                if not victims:
                    continue
                for victim in victims:
                    preempt(plan, view, victim)
                last = slots.index(victims[-1])
                fits = view.ledger.take(seq, size)
                assert fits, f"{seq.id} fits in a trial but not in truth"
            plan.grants.append(Grant(seq, size))
            left -= size if is_prompt else 0
        if slots and not plan.grants and slots[0].place is Place.RUNNING:
            preempt(plan, view, slots[0])  # all memory is too little for it: as it waits, it is refused
        return plan

    def _slots(self, view: View, plan: StepPlan) -> Iterator[Sequence]:
        """Who holds a slot: those that run, those that were preempted, and new ones in order while slots are left."""
        yield from view.running
        left = self._params.max_batch_size - view.num_running
        for seq in possible(plan, view.waiting, lambda seq: self._obstacle(view, seq)):
            if left < seq.num_branches:
                return
            left -= seq.num_branches
            yield seq

    def _obstacle(self, view: View, seq: Sequence) -> str | None:
        """Why a request can never be admitted, if so."""
        return too_long(view, seq) or too_many(seq, self._params.max_batch_size, "max_batch_size")


def _victims(view: View, seq: Sequence, size: int, younger: list[Sequence]) -> list[Sequence]:
    """Whom to take memory from, youngest first, so that `seq` gets `size` tokens; empty when all is not enough."""
    trial = view.ledger.scratch()
    victims = []
    for other in reversed(younger):
        if other.place is Place.RUNNING:
            trial.give_back(other)
            victims.append(other)
            if trial.take(seq, size):
                return victims
    return []
