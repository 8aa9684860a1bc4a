"""Logits to tokens, each sequence by its own wishes. Pure: the same draw over the same logits gives the same token.

For one draw, in this order:

    1. penalties     repetition over prompt and output, then frequency and presence over the output
    2. bias          `logit_bias` is added
    3. masks         `allowed_token_ids`, `bad_token_ids`, `min_tokens`; one that would leave no token is skipped
    4. greedy        temperature 0 takes the likeliest token, the lowest id among equals, and ends here
    5. temperature   logits are divided by it
    6. min_p         tokens less likely than `min_p` times the likeliest go
    7. top_k         the `top_k` likeliest stay, lower ids first among equals
    8. top_p         the likeliest of those stay until their share of what is left reaches `top_p`
    9. the draw      one number, see `uniform`, picks from the kept tokens in the order of their ids

A row's result depends on its own logits alone, bit for bit: rows are worked on one at a time, but for the arg max,
which does not round. Log probabilities and ranks are those of the model: of the logits as they came, before step 1.

V vocabulary, R rows, N some of the vocabulary's tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headway.core import Draw, Logprobs, SamplingParams, Token
from headway.errors import ExecutorFault
from headway.executor.adjust import adjusted
from headway.kernels import log_softmax

Array = NDArray[np.float32]
Ids = NDArray[np.int64]

LEAST_TEMPERATURE = np.finfo(np.float32).tiny
"""A smaller one would be 0 to single precision, and the likeliest token 0 / 0. At this one nothing else is left."""

_FIRST_NUCLEUS = 1024
"""Tokens sorted at first for `top_p`; they nearly always hold the nucleus. A whole vocabulary takes 30 times longer."""


def sample(
    draws: Sequence[Draw],
    logit_rows: Sequence[int],
    logits_RV: Array,
    best_R: NDArray[np.integer[Any]] | None = None,
) -> list[Token]:
    """The next token of each draw; draw i reads row `logit_rows[i]`, which several draws may share.

    `best_R` is each row's arg max where it is known already; in a row without any number, any index.
    Raises `ExecutorFault` naming the sequences whose logits have no finite maximum; nothing is drawn then.
    """
    if best_R is None:
        best_R = logits_RV.argmax(axis=1) if len(draws) else np.empty(0, np.int64)
    best = best_R.tolist()
    # A NaN is its row's arg max, so one look at the maxima finds every row that cannot be drawn from. One by one: with
    # a row or a few, a step's caches hold none of what an operation on arrays needs.
    finite = [isfinite(logits_RV.item(row, token_id)) for row, token_id in enumerate(best)]
    if not all(finite):
        broken = tuple(draw.seq_id for draw, row in zip(draws, logit_rows, strict=True) if not finite[row])
        raise ExecutorFault(f"the model computed no usable logits for {', '.join(broken)}", seq_ids=broken)
    return [
        Token(best[row]) if _takes_best(draw) else draw_token(draw, logits_RV[row])
        for draw, row in zip(draws, logit_rows, strict=True)
    ]


def _takes_best(draw: Draw) -> bool:
    """Whether the likeliest token is the answer as it stands: greedy, and nothing changes or reports the logits."""
    params = draw.params
    return (
        params.temperature == 0.0
        and params.logprobs is None
        and params.repetition_penalty == 1.0
        and not params.presence_penalty
        and not params.frequency_penalty
        and not params.logit_bias
        and params.allowed_token_ids is None
        and not params.bad_token_ids
        and params.min_tokens <= len(draw.token_ids) - draw.num_prompt
    )


def draw_token(draw: Draw, logits_V: Array) -> Token:
    """The next token of one sequence from one row of finite logits, with its log probabilities when asked for."""
    params = draw.params
    changed_V = adjusted(draw, logits_V)
    if params.is_greedy:
        token_id = int(changed_V.argmax())
    else:
        ids_N, weights_N = kept_tokens(params, changed_V)
        token_id = int(ids_N[_pick(weights_N, uniform(draw))])
    return Token(token_id, None if params.logprobs is None else score(logits_V, token_id, params.logprobs))


def uniform(draw: Draw) -> float:
    """The random number of one draw, in [0, 1): a function of seed, choice and output position, of nothing else.

    It is the first 53 bits of the first output of Philox 4x64-10 (Salmon et al., "Parallel random numbers: as easy as
    1, 2, 3", 2011) with key (seed, choice) and counter (position + 1, 0, 0, 0).
    """
    position = len(draw.token_ids) - draw.num_prompt
    key = np.array([draw.seed % 2**64, draw.choice], np.uint64)
    bits = np.random.Philox(key=key, counter=position).random_raw()
    return (int(bits) >> 11) * 2.0**-53


def kept_tokens(params: SamplingParams, logits_V: Array) -> tuple[Ids, Array]:
    """Steps 5 to 8: the ids that may be drawn, ascending, and their weights (the likeliest of all has weight 1)."""
    # Relative to the maximum, so that a tiny temperature sends tokens to weight 0 and none to infinity.
    with np.errstate(over="ignore"):
        scaled_V = (logits_V - logits_V.max()) / max(np.float32(params.temperature), LEAST_TEMPERATURE)
    weights_V = np.exp(scaled_V)
    ids_N = np.flatnonzero(weights_V >= params.min_p) if params.min_p > 0.0 else np.arange(len(weights_V))
    if 0 < params.top_k < len(ids_N):
        ids_N = np.sort(ids_N[likeliest(scaled_V[ids_N], params.top_k)])
    if params.top_p < 1.0:
        ids_N = np.sort(ids_N[_nucleus(scaled_V[ids_N], weights_V[ids_N], params.top_p)])
    return ids_N, weights_V[ids_N]


def likeliest(logits_N: Array, count: int) -> Ids:
    """Places of the `count` largest entries, largest first, lower places first among equals."""
    total = len(logits_N)
    if count >= total:
        return np.argsort(-logits_N, kind="stable")
    least = np.partition(logits_N, total - count)[total - count]
    above = np.flatnonzero(logits_N > least)
    equal = np.flatnonzero(logits_N == least)[: count - len(above)]
    return np.concatenate([above[np.argsort(-logits_N[above], kind="stable")], equal])


def _nucleus(logits_N: Array, weights_N: Array, top_p: float) -> Ids:
    """Places of the fewest likeliest entries that hold at least `top_p` of the weight (arXiv 1904.09751)."""
    enough = top_p * float(weights_N.sum(dtype=np.float64))
    count = _FIRST_NUCLEUS
    while True:
        places = likeliest(logits_N, count)
        held = np.cumsum(weights_N[places], dtype=np.float64)
        if held[-1] >= enough or count >= len(logits_N):
            return places[: int(np.searchsorted(held, enough)) + 1]
        count *= 8


def _pick(weights_N: Array, number: float) -> int:
    """The place where the running sum passes `number` of the total; never one of weight 0."""
    held = np.cumsum(weights_N, dtype=np.float64)
    place = int(np.searchsorted(held, number * held[-1], side="right"))
    # The product may round up to the total itself: the last weight above 0 is meant.
    return place if place < len(held) else int(np.searchsorted(held, held[-1]))


def score(logits_V: Array, token_id: int, num_top: int) -> Logprobs:
    """Log probability of a token, its rank (1 + the tokens that are strictly likelier), and the `num_top` likeliest."""
    logprobs_V = log_softmax(logits_V)
    top = likeliest(logits_V, num_top).tolist() if num_top else []
    return Logprobs(
        logprob=float(logprobs_V[token_id]),
        rank=1 + int(np.count_nonzero(logits_V > logits_V[token_id])),
        top=tuple(zip(top, logprobs_V[top].tolist(), strict=True)),
    )
