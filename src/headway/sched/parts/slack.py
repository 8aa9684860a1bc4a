"""How many prompt tokens fit into the slack of the tightest decode (QoServe, arXiv 2503.22562; ALGORITHMS §20)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from headway.sched.parts.steptime import StepLoad, StepTimeModel

SAFETY = 1.2
"""A predicted time counts so many times over."""

TOTALS = (128, *range(256, 2049, 256), 2552)
_SCARCE_TOTAL = 512
_PLENTY = 1000
_STEPS_AHEAD = 32


@dataclass(frozen=True, slots=True)
class Mix:
    """What a step computes, in tokens: decodes with their context, and prompt tokens behind a context of their own."""

    num_decodes: int
    num_prefill: int
    decode_context: int
    prefill_context: int


Predict = Callable[[Mix], float]
"""Seconds that a step takes."""


def fitted(mix: Mix) -> float:
    """Seconds of a step of Llama3-8B on one A100, as published: one line up to 512 tokens, another beyond."""
    num = mix.num_decodes + mix.num_prefill
    if num <= 512:
        fixed, per_token, prefill, decode = 0.014936, 5.882475e-05, 2.247956e-05, 3.634519e-05
        decode_context, prefill_context = 1.111258e-07, 7.554773e-07
    else:
        fixed, per_token, prefill, decode = 0.005004, 2.719050e-05, 6.863043e-05, -4.143993e-05
        decode_context, prefill_context = 1.663409e-07, 2.727223e-06
    tokens = per_token * num + prefill * mix.num_prefill + decode * mix.num_decodes
    return fixed + tokens + decode_context * mix.decode_context + prefill_context * mix.prefill_context


def measured(model: StepTimeModel) -> Predict:
    """Predictions of a model that is fitted online; endless until it has seen enough, so that chunks start small."""

    def predict(mix: Mix) -> float:
        if not model.is_ready:
            return float("inf")
        num = mix.num_prefill
        context = mix.decode_context + mix.num_decodes + num * mix.prefill_context + num * (num + 1) // 2
        return model.predict(StepLoad(mix.num_decodes + num, context, mix.num_decodes + 1))

    return predict


def totals_for(num_free_tokens: int, most: int) -> Sequence[int]:
    """Batch sizes in tokens to choose from, fewer where memory would not last for some steps, up to `most`."""
    if num_free_tokens // _STEPS_AHEAD < _PLENTY:
        most = min(most, _SCARCE_TOTAL)
    return [total for total in TOTALS if total <= most] or [most]


def prefill_tokens(slack: float, decodes: Mix, totals: Sequence[int], predict: Predict) -> int:
    """Prompt tokens for a step: the greatest total whose time, with safety, stays within the slack, less the decodes.

    The least total where none does, or where there is no slack left. Binary search: times rise with totals.
    """
    best, low, high = totals[0], 0, len(totals) - 1
    while slack > 0 and low <= high:
        middle = (low + high) // 2
        num = max(0, totals[middle] - decodes.num_decodes)
        mix = Mix(decodes.num_decodes, num, decodes.decode_context, decodes.prefill_context)
        if SAFETY * predict(mix) <= slack:
            best, low = totals[middle], middle + 1
        else:
            high = middle - 1
    return max(0, best - decodes.num_decodes)
