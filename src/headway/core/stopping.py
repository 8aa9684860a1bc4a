"""When a sequence ends, as far as its tokens alone can tell."""

from __future__ import annotations

from headway.core.request import FinishReason
from headway.core.sequence import Sequence


def token_stop(seq: Sequence) -> FinishReason | None:
    """Why `seq` ends with its newest token, or None where it goes on.

    The token is already in `token_ids`. An end-of-text token or a stop token ends nothing before `min_tokens`, but
    `max_output` always does. A token that does both counts as STOP.
    """
    request = seq.request
    params = request.params
    num_output = len(seq.token_ids) - len(request.prompt_ids)
    if num_output >= params.min_tokens:
        token_id = seq.token_ids[-1]
        if (token_id in request.eos_ids and not params.ignore_eos) or token_id in params.stop_token_ids:
            return FinishReason.STOP
    return FinishReason.LENGTH if num_output >= request.max_output else None
