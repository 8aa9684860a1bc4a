"""Requests that somebody beside the policy holds back in the queue."""

from __future__ import annotations

from collections.abc import Callable, Collection

from headway.core import Hold, Request, Sequence
from headway.sched.queues import Queues

HoldBack = Callable[[float], Callable[[Request], bool] | None]
"""Given the time, who is held back; None: nobody."""


def nobody(_: float) -> None:
    """Hold nobody back."""


def let_pass(queues: Queues, hold_back: HoldBack, now_s: float) -> tuple[Collection[Sequence], dict[str, Hold]]:
    """Who waits for the policy, and who for the guardrails: only what was not begun, and only while others have work.

    So the device never idles for it.
    """
    holds = hold_back(now_s) if queues.waiting else None
    if holds is None:
        return queues.waiting, {}
    held = {
        seq.id: Hold.GUARDRAIL
        for seq in queues.waiting
        if not seq.num_computed and not seq.num_output and holds(seq.request)
    }
    if not (queues.running or queues.swapped or len(held) < len(queues.waiting)):
        return queues.waiting, {}
    return [seq for seq in queues.waiting if seq.id not in held], held
