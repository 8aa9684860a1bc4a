"""When a made-up answer is over."""

from __future__ import annotations

from headway.core import FinishReason, Sequence


def stop(seq: Sequence) -> FinishReason | None:
    """An end-of-text token, or the length that the client allowed."""
    request, token_ids = seq.request, seq.token_ids
    if token_ids[-1] in request.eos_ids:
        return FinishReason.STOP
    return FinishReason.LENGTH if len(token_ids) - len(request.prompt_ids) >= request.max_output else None
