"""What a client's wishes do to logits before a token is drawn: penalties, bias, masks. V vocabulary, N distinct tokens.

Token ids outside the vocabulary have no effect.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from headway.core import Draw, SamplingParams

Array = NDArray[np.float32]
Ids = NDArray[np.int64]


def adjusted(draw: Draw, logits_V: Array) -> Array:
    """The logits after penalties, bias and masks: a copy, or the very same array when nothing asks for a change."""
    params = draw.params
    num_output = len(draw.token_ids) - draw.num_prompt
    banned = _completions(params.bad_token_ids, draw.token_ids[draw.num_prompt :]) if params.bad_token_ids else []
    forbidden = [*draw.eos_ids, *params.stop_token_ids] if num_output < params.min_tokens else []
    penalised = _has_penalties(params)
    if not (penalised or params.logit_bias or params.allowed_token_ids is not None or banned or forbidden):
        return logits_V
    logits_V = logits_V.copy()
    if penalised:
        _penalise(logits_V, params, draw.token_ids, draw.num_prompt)
    for token_id, bias in params.logit_bias:
        if 0 <= token_id < len(logits_V):
            logits_V[token_id] += bias
    if params.allowed_token_ids is not None:
        others_V = np.ones(len(logits_V), np.bool_)
        others_V[_known(params.allowed_token_ids, logits_V)] = False
        _mask(logits_V, np.flatnonzero(others_V))
    _mask(logits_V, _known(banned, logits_V))
    _mask(logits_V, _known(forbidden, logits_V))
    return logits_V


def _has_penalties(params: SamplingParams) -> bool:
    return bool(params.repetition_penalty != 1.0 or params.presence_penalty or params.frequency_penalty)


def _penalise(logits_V: Array, params: SamplingParams, token_ids: Sequence[int], num_prompt: int) -> None:
    """Change `logits_V` by vLLM's penalties.

    Repetition (arXiv 1909.05858): positive logits of tokens that occurred are divided, others multiplied. Frequency
    and presence (OpenAI's): subtracted once for each occurrence in the output, or once for any.
    """
    if params.repetition_penalty != 1.0:
        seen = np.unique(_known(token_ids, logits_V))
        old = logits_V[seen]
        factor = np.float32(params.repetition_penalty)
        logits_V[seen] = np.where(old > 0, old / factor, old * factor)
    if params.frequency_penalty or params.presence_penalty:
        seen, counts = np.unique(_known(token_ids[num_prompt:], logits_V), return_counts=True)
        logits_V[seen] -= (params.frequency_penalty * counts + params.presence_penalty).astype(np.float32)


def _completions(sequences: Sequence[Sequence[int]], output_ids: list[int]) -> list[int]:
    """Last tokens of the sequences whose other tokens the output ends with. As in vLLM, the prompt does not count."""
    found = []
    for token_ids in sequences:
        *lead, last = token_ids
        if not lead or output_ids[-len(lead) :] == lead:
            found.append(last)
    return found


def _known(token_ids: Sequence[int], logits_V: Array) -> Ids:
    ids = np.asarray(token_ids, np.int64)
    return ids[(ids >= 0) & (ids < len(logits_V))]


def _mask(logits_V: Array, ids: Ids) -> None:
    """Rule out `ids`, unless that would leave no token at all: then this mask gives way."""
    if not len(ids):
        return
    old = logits_V[ids]
    logits_V[ids] = -np.inf
    if logits_V.max() == -np.inf:
        logits_V[ids] = old
