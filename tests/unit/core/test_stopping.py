"""token_stop: which token ends a sequence, and why."""

import pytest

from headway.core import FinishReason, Request, SamplingParams, Sequence
from headway.core.stopping import token_stop

EOS, STOP_ID, OTHER = 2, 7, 5


def seq_with(*output: int, max_output: int = 10, eos_ids=frozenset({EOS}), **params) -> Sequence:
    request = Request(
        id="r", prompt_ids=(1, 1), max_output=max_output, eos_ids=eos_ids, params=SamplingParams(**params)
    )
    seq = Sequence(request)
    seq.token_ids.extend(output)
    return seq


@pytest.mark.parametrize(
    ("seq", "reason"),
    [
        (seq_with(OTHER), None),
        (seq_with(EOS), FinishReason.STOP),
        (seq_with(EOS, eos_ids=frozenset()), None),
        (seq_with(EOS, ignore_eos=True), None),
        (seq_with(EOS, ignore_eos=True, stop_token_ids=(EOS,)), FinishReason.STOP),
        (seq_with(STOP_ID, stop_token_ids=(STOP_ID,)), FinishReason.STOP),
        (seq_with(STOP_ID, OTHER, stop_token_ids=(STOP_ID,)), None),
        (seq_with(EOS, min_tokens=2), None),
        (seq_with(OTHER, EOS, min_tokens=2), FinishReason.STOP),
        (seq_with(STOP_ID, min_tokens=2, stop_token_ids=(STOP_ID,)), None),
        (seq_with(OTHER, OTHER, max_output=2), FinishReason.LENGTH),
        (seq_with(OTHER, EOS, max_output=2), FinishReason.STOP),
        (seq_with(OTHER, EOS, max_output=2, min_tokens=3), FinishReason.LENGTH),
    ],
)
def test_reason(seq, reason):
    """EOS and stop tokens end it from `min_tokens` on, `max_output` always, and only the newest token counts."""
    assert token_stop(seq) is reason


def test_prompt_tokens_never_stop():
    """An EOS inside the prompt is just a token."""
    request = Request(id="r", prompt_ids=(EOS, EOS), max_output=3, eos_ids=frozenset({EOS}))
    seq = Sequence(request)
    seq.token_ids.append(OTHER)
    assert token_stop(seq) is None
