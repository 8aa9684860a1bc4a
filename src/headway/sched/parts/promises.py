"""Passes for policies that promise memory to the end at admission, and so never take anything back."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from headway.core import Grant, Sequence, StepPlan
from headway.sched.view import View


def run_whole(view: View, plan: StepPlan, seqs: Iterable[Sequence]) -> None:
    """Grant each sequence all that it has pending; its memory was promised, so it is there."""
    for seq in seqs:
        num_tokens = seq.num_pending
        fits = view.ledger.take(seq, num_tokens)
        assert fits, f"{seq.id} lacks memory that it was promised"
        plan.grants.append(Grant(seq, num_tokens))


def promise(view: View, seq: Sequence, num_tokens: int) -> int:
    """What to reserve so that every choice of a request gets whole blocks for `num_tokens`, and shares none."""
    return seq.num_branches * view.ledger.blocks_for(num_tokens) * view.ledger.block_size


def possible(
    plan: StepPlan, queue: Iterable[Sequence], obstacle: Callable[[Sequence], str | None]
) -> Iterator[Sequence]:
    """The queue without the sequences that `obstacle` names a reason against: they are rejected with it.

    Lazy: only as far as the queue is read.
    """
    for seq in queue:
        if (reason := obstacle(seq)) is None:
            yield seq
        else:
            plan.rejected.append((seq, reason))


def too_large(view: View, seq: Sequence, num_blocks: int) -> str | None:
    """Why a request that holds `num_blocks` blocks at its longest can never run here; None where it can."""
    if num_blocks <= view.ledger.num_blocks:
        return None
    return (
        f"{seq.request.id} needs {num_blocks} blocks of memory for {seq.num_prompt} prompt tokens and up to "
        f"{seq.request.max_output} more (times {seq.num_branches}); there are {view.ledger.num_blocks}: "
        "lower max_tokens or n, or raise num_blocks"
    )


def too_many(seq: Sequence, max_seqs: int, name: str) -> str | None:
    """Why a request with more choices than may run at once can never run; None where it can."""
    if seq.num_branches <= max_seqs:
        return None
    return f"{seq.request.id} wants {seq.num_branches} choices, but {name} is {max_seqs}: lower n, or raise {name}"


def too_long(view: View, seq: Sequence, spare_blocks: int = 0) -> str | None:
    """Why a sequence can never hold the tokens that it must compute before its next one; None where it can."""
    num_blocks, num_usable = view.ledger.blocks_for(seq.num_tokens), view.ledger.num_blocks - spare_blocks
    if num_blocks <= num_usable:
        return None
    above = f" above the watermark of {spare_blocks}" if spare_blocks else ""
    return (
        f"{seq.request.id} has {seq.num_tokens} tokens to prefill, which take {num_blocks} blocks of memory, and "
        f"{num_usable} can be had{above}: shorten it, or raise num_blocks"
    )
