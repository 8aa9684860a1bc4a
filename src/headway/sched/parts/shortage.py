"""Who gives way when memory is short, and how: by cost."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from headway.core import Place, Preemption, PreemptMethod, Sequence, StepPlan
from headway.sched.view import View


@dataclass(frozen=True, slots=True)
class Prices:
    """Seconds per token: to compute it again, and to copy its KV to the host and back."""

    recompute_s: float
    copy_s: float


@dataclass(frozen=True, slots=True)
class _Offer:
    """One way to free blocks."""

    seq: Sequence
    method: PreemptMethod
    keep_tokens: int
    cost_s: float
    num_freed: int


def relieve(view: View, plan: StepPlan, prices: Prices, rank: Callable[[Sequence], tuple[float, ...]]) -> bool:
    """Plan one preemption: the victim and method that free blocks at the least cost; False when nobody can give way.

    `rank` orders sequences, the first to be served lowest. The lowest of all is never a victim: it always
    makes progress. Among the others the lowest class gives way first; within it the cheapest offer per block
    wins, dearer with each earlier preemption of the same sequence, so that nobody is picked on for ever.
    Where nobody runs, and the only one that holds memory waits behind somebody who lacks it, that one gives all.
    """
    taken = {entry.seq.id for entry in plan.preemptions}
    holders = [seq for seq in (*view.running, *view.waiting) if _holds(view, seq) and seq.id not in taken]
    holders = [seq for seq in holders if not seq.num_in_flight]
    if len(holders) == 1 and not view.running:
        return _carry_out(view, plan, _offers(view, holders[0], prices)[0])  # by recompute
    if len(holders) < 2:
        return False
    first = min(holders, key=rank)
    others = [seq for seq in holders if seq is not first]
    worst = max(rank(seq)[:2] for seq in others)
    offers = [offer for seq in others if rank(seq)[:2] == worst for offer in _offers(view, seq, prices)]
    for offer in sorted(offers, key=lambda offer: (offer.cost_s / offer.num_freed, offer.seq.id)):
        if _carry_out(view, plan, offer):
            return True
    return False


def _holds(view: View, seq: Sequence) -> bool:
    return view.ledger.num_held(seq) > 0


def _offers(view: View, seq: Sequence, prices: Prices) -> list[_Offer]:
    """What this sequence could do; blocks that it shares stay with the others and are found again."""
    ledger = view.ledger
    held, private = ledger.num_held(seq), ledger.books.num_private(seq.id)
    dearer = 1.0 + seq.num_preemptions
    again = max(1, seq.num_computed - (held - private) * ledger.block_size)
    offers = [_Offer(seq, PreemptMethod.RECOMPUTE, 0, dearer * again * prices.recompute_s, max(1, private))]
    if seq.place is Place.RUNNING:
        swap_s = 2.0 * seq.num_computed * prices.copy_s
        offers.append(_Offer(seq, PreemptMethod.SWAP, 0, dearer * swap_s, max(1, private)))
    keep = seq.num_computed // 2 // ledger.block_size * ledger.block_size
    freed = min(private, held - ledger.blocks_for(keep))
    if keep and freed:
        part_s = dearer * (seq.num_computed - keep) * prices.recompute_s
        offers.append(_Offer(seq, PreemptMethod.PARTIAL, keep, part_s, freed))
    return offers


def _carry_out(view: View, plan: StepPlan, offer: _Offer) -> bool:
    seq = offer.seq
    match offer.method:
        case PreemptMethod.SWAP:
            if not view.ledger.give_back_swapped(seq):
                return False
        case PreemptMethod.RECOMPUTE:
            view.ledger.give_back(seq)
        case PreemptMethod.PARTIAL:
            view.ledger.give_back(seq, offer.keep_tokens)
    plan.grants = [grant for grant in plan.grants if grant.seq is not seq]
    plan.preemptions.append(Preemption(seq, offer.method, keep_tokens=offer.keep_tokens, price_s=offer.cost_s))
    return True
