"""Gangs: the sequences of one request, which run, give way and come back together (vLLM V0, ALGORITHMS §3)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import groupby

from headway.core import Preemption, PreemptMethod, Sequence, StepPlan
from headway.kv import Ledger
from headway.sched.fill import Budget, grant
from headway.sched.view import View

Gang = list[Sequence]
Size = Callable[[Sequence, int], int]
"""Tokens for a sequence on the device, given what is left of the budget."""


def gangs_of(seqs: Iterable[Sequence]) -> list[Gang]:
    """Sequences by request: the oldest request first, its choices in order."""
    ordered = sorted(seqs, key=lambda seq: (seq.rank, seq.choice))
    return [list(members) for _, members in groupby(ordered, key=lambda seq: seq.rank)]


def width(gang: Gang) -> int:
    """Sequences of a gang, those still to be forked included."""
    return sum(seq.num_branches for seq in gang)


def sizes_of(gang: Gang, budget: Budget, size: Size) -> list[int]:
    """Tokens for each of a gang; the last ones get 0 where the budget ends."""
    left = budget.num_tokens
    sizes = []
    for seq in gang:
        sizes.append(size(seq, left))
        left -= sizes[-1]
    return sizes


def grant_gang(plan: StepPlan, budget: Budget, gang: Gang, sizes: list[int]) -> None:
    """Book tokens that the ledger has taken already."""
    for seq, num_tokens in zip(gang, sizes, strict=True):
        if num_tokens:
            grant(plan, budget, seq, num_tokens)


def keep_oldest(gangs: list[Gang], *, append: Callable[[Gang], bool], evict: Callable[[Gang], None]) -> None:
    """Let the oldest go on; whoever lacks memory takes it from the youngest not served yet, or gives way itself.

    `append` takes what a gang needs now, False when there is not enough; `evict` takes a gang off the device.
    """
    left = deque(gangs)
    while left:
        gang = left.popleft()
        while not append(gang):
            victim = left.pop() if left else gang
            evict(victim)
            if victim is gang:
                break


def take_together(ledger: Ledger, gang: Gang, sizes: list[int], *, whole: bool) -> bool:
    """Take tokens for all of a gang, or for nobody; with `whole`, blocks for all that is known of each."""
    if len(gang) > 1 and (whole or ledger.num_free < sum(sizes)):  # a token costs a block at most
        trial = ledger.scratch()
        if not _take_each(trial, gang, sizes, whole=whole):
            return False
    return _take_each(ledger, gang, sizes, whole=whole)


def evict_gang(view: View, plan: StepPlan, budget: Budget, gang: Gang, *, swap: bool, spare_blocks: int) -> None:
    """Preempt a gang that was granted nothing: by swap, if wished for and if it can come back, else by recompute."""
    ledger = view.ledger
    method = PreemptMethod.RECOMPUTE
    if swap and num_needed(ledger, gang) <= ledger.num_blocks - spare_blocks and ledger.give_back_swapped(*gang):
        method = PreemptMethod.SWAP
    for seq in reversed(gang):  # each goes to the front of the queue: the first choice last
        if method is PreemptMethod.RECOMPUTE:
            ledger.give_back(seq)
        plan.preemptions.append(Preemption(seq, method))
    budget.num_seqs += width(gang)


def num_needed(ledger: Ledger, gang: Gang) -> int:
    """Free blocks that a gang's return asks for: what it holds (of a prompt, the whole), and one for each."""
    num_held = ledger.books.num_shared(seq.id for seq in gang)
    if len(gang) == 1 and not gang[0].is_decoding:
        num_held = max(num_held, ledger.blocks_for(gang[0].num_tokens))
    return num_held + len(gang)


def swap_in_gangs(view: View, plan: StepPlan, budget: Budget, *, size: Size, spare_blocks: int) -> None:
    """Bring swapped gangs back, oldest first, and compute tokens of each; end at the first that cannot."""
    ledger = view.ledger
    for gang in gangs_of(view.swapped):
        if ledger.num_free - num_needed(ledger, gang) < spare_blocks or budget.num_seqs < width(gang):
            return
        if not any(sizes := sizes_of(gang, budget, size)):
            return
        for seq, num_tokens in zip(gang, sizes, strict=True):
            fits = ledger.take_swap_in(seq, num_tokens) and ledger.take(seq, 0, seq.num_tokens)
            assert fits, f"{seq.id} does not fit, though its gang does"
        plan.swap_ins += gang
        grant_gang(plan, budget, gang, sizes)
        budget.num_seqs -= width(gang)


def admit_gangs(
    view: View,
    plan: StepPlan,
    budget: Budget,
    *,
    fits: Callable[[Gang], bool],
    obstacle: Callable[[Gang], str | None],
    cuts: bool,
    spare_blocks: int,
) -> None:
    """Admit waiting gangs in order with blocks for all they know; end at the first that does not fit.

    Those that `obstacle` names a reason against are rejected. Several sequences that came back from the device
    are admitted at once if they could ever fit so (`fits`), else one by one. `cuts` lets a prompt start with
    what is left of the budget.
    """
    ledger = view.ledger
    for gang in _waiting_gangs(view, plan, fits, obstacle):
        sizes = [ledger.num_pending(seq) for seq in gang]
        if cuts and len(gang) == 1:
            sizes = [min(sizes[0], budget.num_tokens)]
        if budget.num_tokens < max(1, sum(sizes)) or budget.num_seqs < width(gang):
            return
        if not take_together(ledger, gang, sizes, whole=True):
            return
        if ledger.num_free < spare_blocks:
            for seq in gang:
                ledger.give_back(seq)
            return
        grant_gang(plan, budget, gang, sizes)
        budget.num_seqs -= width(gang)


def _waiting_gangs(
    view: View, plan: StepPlan, fits: Callable[[Gang], bool], obstacle: Callable[[Gang], str | None]
) -> Iterator[Gang]:
    """The queue in its order, as far as it is read."""
    for _, members in groupby(view.waiting, key=lambda seq: seq.rank):
        gang = list(members)
        if reason := obstacle(gang):
            plan.rejected.append((gang[0], reason))
        elif len(gang) == 1 or fits(gang):
            yield gang
        else:
            yield from ([seq] for seq in gang)


def _take_each(ledger: Ledger, gang: Gang, sizes: list[int], *, whole: bool) -> bool:
    return all(
        ledger.take(seq, num_tokens, seq.num_tokens if whole else None)
        for seq, num_tokens in zip(gang, sizes, strict=True)
    )
