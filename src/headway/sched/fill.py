"""Shared passes: a policy is a choice and an order of these.

Each pass reads the view, spends its ledger and a budget, and adds to the plan. Nothing here has effects
beyond these three, so passes compose and backtrack freely.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from headway.core import Grant, Hold, Place, Preemption, PreemptMethod, Requeue, Sequence, StepPlan
from headway.sched.view import View

NO_LIMIT = 1 << 62


@dataclass(slots=True)
class Budget:
    """What is left of a step: tokens to grant and sequences to hold."""

    num_tokens: int = NO_LIMIT
    num_seqs: int = NO_LIMIT

    @classmethod
    def of(cls, view: View, max_tokens: int | None, max_seqs: int | None) -> Budget:
        """A whole step's budget; the sequences that run already use theirs."""
        return cls(
            NO_LIMIT if max_tokens is None else max_tokens,
            NO_LIMIT if max_seqs is None else max_seqs - view.num_running,
        )


def capped(num_tokens: int, cap: int) -> int:
    """`num_tokens`, at most `cap`; a cap of 0 means none."""
    return min(num_tokens, cap) if cap > 0 else num_tokens


def is_preempted(plan: StepPlan, seq: Sequence) -> bool:
    """Whether the plan takes it off the device."""
    return any(entry.seq is seq for entry in plan.preemptions)


def preempt(
    plan: StepPlan,
    view: View,
    victim: Sequence,
    method: PreemptMethod = PreemptMethod.RECOMPUTE,
    requeue: Requeue = Requeue.FRONT,
) -> bool:
    """Plan to take `victim` off the device, undoing its grant; False when the host tier has no room for a swap."""
    if method is PreemptMethod.SWAP:
        if not view.ledger.give_back_swapped(victim):
            return False
    else:
        view.ledger.give_back(victim)
    plan.grants = [grant for grant in plan.grants if grant.seq is not victim]
    plan.preemptions.append(Preemption(victim, method, requeue))
    return True


def grant(plan: StepPlan, budget: Budget, seq: Sequence, num_tokens: int) -> None:
    """Book tokens that the ledger has taken already."""
    plan.grants.append(Grant(seq, num_tokens))
    budget.num_tokens -= num_tokens


def obtain(view: View, plan: StepPlan, seq: Sequence, num_tokens: int) -> bool:
    """Take blocks for a sequence, planning its return where it is swapped out; False when they do not fit."""
    if seq.place is not Place.SWAPPED:
        return view.ledger.take(seq, num_tokens)
    if not view.ledger.take_swap_in(seq, num_tokens):
        return False
    plan.swap_ins.append(seq)
    return True


def run_in_order(view: View, plan: StepPlan, wanted: list[tuple[Sequence, int]], idle: list[Sequence]) -> None:
    """Grant the sequences of a batch, from its front, so many tokens each. Uses up both lists.

    Where blocks lack, the last of `idle`, which are not in the batch, gives way, then the last of the batch
    (FastServe, ALGORITHMS §5.5). Without room in the host tier a swap becomes a recompute.
    """
    at = 0
    while at < len(wanted):
        seq, num_tokens = wanted[at]
        if obtain(view, plan, seq, num_tokens):
            plan.grants.append(Grant(seq, num_tokens))
            at += 1
            continue
        victim = idle.pop() if idle else wanted.pop()[0]
        holds = victim is not seq and victim.place is Place.RUNNING
        if holds and not preempt(plan, view, victim, PreemptMethod.SWAP):
            preempt(plan, view, victim)


Victim = Callable[[list[Sequence]], Sequence]
"""Picks whom to preempt among the running sequences that are left."""


def youngest(candidates: list[Sequence]) -> Sequence:
    """The last one admitted."""
    return candidates[-1]


def fill_running(view: View, plan: StepPlan, budget: Budget, *, cap: int = 0, victim: Victim = youngest) -> None:
    """Grant running sequences in order; where memory is short, preempt (recompute) until it suffices.

    `cap` bounds a sequence's tokens, 0 does not. A sequence that must give way itself ends the pass. As vLLM V1,
    ALGORITHMS §4 steps 1-3: a sequence with nothing to compute is passed over, not waited for.
    """
    take = view.ledger.take
    left = [seq for seq in view.running if not seq.num_in_flight]
    at = 0
    while True:
        at += fill_decodes(view, plan, budget, left[at:])
        if at == len(left) or budget.num_tokens <= 0:
            return
        seq = left[at]
        wanted = len(seq.token_ids) - seq.num_computed
        if wanted > 1:
            wanted = min(wanted, cap or NO_LIMIT, budget.num_tokens)
        at += 1
        if wanted <= 0:
            continue
        while not take(seq, wanted):
            loser = victim(left)
            position = left.index(loser)
            del left[position]
            at -= position < at
            budget.num_tokens += sum(entry.num_tokens for entry in plan.grants if entry.seq is loser)
            preempt(plan, view, loser)
            budget.num_seqs += loser.num_branches
            if loser is seq:
                return
        grant(plan, budget, seq, wanted)


def fill_decodes(view: View, plan: StepPlan, budget: Budget, seqs: list[Sequence]) -> int:
    """Grant a token to each of the first sequences that lack one, no more, and own the block that it goes into.

    Returns how many these are: up to the first that needs anything else, or to the end of the budget.
    """
    num = view.ledger.take_decodes(seqs[: max(0, budget.num_tokens)])
    plan.grants += [Grant(seq, 1) for seq in seqs[:num]]
    budget.num_tokens -= num
    return num


def admit(
    view: View,
    plan: StepPlan,
    budget: Budget,
    queue: Iterable[Sequence],
    *,
    chunk: Callable[[Sequence, int], int],
    reserve: Callable[[Sequence], int | None] = lambda _: None,
    fits: Callable[[Sequence], bool] = lambda _: True,
    watermark_blocks: int = 0,
) -> None:
    """Admit waiting sequences in order, stopping at the first that does not fit (no overtaking).

    `chunk(seq, budget)` says how many tokens to compute now, 0 to pass it over; `reserve` the tokens of memory
    promised at admission (None: as it grows); `fits` may refuse for a reason of its own. `watermark_blocks` stay free.
    """
    for seq in queue:
        if budget.num_tokens <= 0 or budget.num_seqs < seq.num_branches:
            plan.limit = Hold.TOKENS if budget.num_tokens <= 0 else Hold.SEQUENCES
            return
        wanted = chunk(seq, budget.num_tokens)
        if wanted <= 0:
            continue
        if not fits(seq) or not view.ledger.take(seq, wanted, reserve(seq)):
            plan.limit = Hold.KV
            return
        if view.ledger.num_free < watermark_blocks:
            plan.limit = Hold.KV
            view.ledger.give_back(seq)
            return
        budget.num_seqs -= seq.num_branches
        grant(plan, budget, seq, wanted)
