"""Who fits in memory: TensorRT-LLM's capacity schedulers (ALGORITHMS §10, 2a-2c), before anyone counts tokens."""

from __future__ import annotations

from collections.abc import Iterable

from headway.core import Place, Sequence, StepPlan
from headway.sched.fill import preempt
from headway.sched.parts.siblings import PrefixesUnderway
from headway.sched.view import View


def fit_to_end(view: View, queue: Iterable[Sequence], max_seqs: int) -> list[Sequence]:
    """Everyone who runs, and from `queue` those whose blocks to completion are free and promised to nobody.

    Takes nothing from the ledger. Ends at the first that does not fit; whoever waits for a prefix is passed over.
    """
    fitting = list(view.running)
    num_seqs = view.num_running
    num_free = view.ledger.num_free - sum(blocks_to_come(view, seq, seq.max_total) for seq in fitting)
    underway = _underway(view)
    for seq in queue:
        if underway and underway.covers(seq, view.ledger.hit(seq).num_tokens):
            continue
        num_blocks = seq.num_branches * view.ledger.blocks_for(seq.max_total)
        if num_seqs + seq.num_branches > max_seqs or num_blocks > num_free:
            break
        fitting.append(seq)
        num_seqs += seq.num_branches
        num_free -= num_blocks
        if underway:
            underway.add(seq)
    return fitting


def fit_now(view: View, plan: StepPlan, queue: list[Sequence], max_seqs: int) -> list[Sequence]:
    """Those in `queue` (running and waiting, in order) whose pending tokens fit together.

    Where one does not fit, the last in the queue that runs gives way, it itself if need be, and nobody from
    there on is looked at again. Takes nothing from the ledger but what the preempted give back.
    """
    what_if = view.ledger.scratch()
    fitting: list[Sequence] = []
    num_seqs = view.num_running
    underway = _underway(view)
    at, stop = 0, len(queue)
    while at < stop:
        seq = queue[at]
        is_new = seq.place is Place.WAITING
        if is_new and (num_seqs + seq.num_branches > max_seqs or _waits(seq, view, underway)):
            at += 1
        elif what_if.take(seq, what_if.num_pending(seq)):
            fitting.append(seq)
            num_seqs += seq.num_branches if is_new else 0
            if is_new and underway:
                underway.add(seq)
            at += 1
        else:
            last = next((spot for spot in reversed(range(at, stop)) if queue[spot].place is Place.RUNNING), None)
            if last is None:
                break
            stop = last
            what_if.give_back(queue[last])
            preempt(plan, view, queue[last])
            num_seqs -= queue[last].num_branches
    return fitting


def blocks_to_come(view: View, seq: Sequence, num_tokens: int) -> int:
    """Blocks that a running sequence has yet to take until it holds so many tokens.

    One is for the copy that a choice may need of a shared block.
    """
    copies = 1 if seq.choice else 0
    return seq.num_branches * view.ledger.blocks_for(num_tokens) - view.ledger.num_held(seq) + copies


def _underway(view: View) -> PrefixesUnderway | None:
    """The prompts being computed now; None where no prefix is ever found again."""
    if not view.ledger.finds_prefixes:
        return None
    return PrefixesUnderway((seq for seq in view.running if not seq.is_decoding), view.ledger.block_size)


def _waits(seq: Sequence, view: View, underway: PrefixesUnderway | None) -> bool:
    return underway is not None and underway.covers(seq, view.ledger.hit(seq).num_tokens)
