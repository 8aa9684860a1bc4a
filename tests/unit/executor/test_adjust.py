import math

import numpy as np
import pytest

from headway.core import Draw, SamplingParams
from headway.executor.adjust import adjusted

INF = math.inf


def adjust(logits, token_ids=(), num_prompt=0, eos_ids=(), **params):
    draw = Draw("a", SamplingParams(**params), 0, 0, list(token_ids), num_prompt, frozenset(eos_ids))
    logits = np.array(logits, np.float32)
    before = logits.copy()
    out = adjusted(draw, logits)
    assert np.array_equal(logits, before), "the model's own logits were changed"
    return out.tolist()


def test_nothing_asked_is_nothing_done():
    """Without wishes the very same array comes back."""
    logits = np.zeros(3, np.float32)
    assert adjusted(Draw("a", SamplingParams(), 0, 0, [1, 2], 1, frozenset({0})), logits) is logits


def test_repetition_counts_prompt_and_output():
    """Positive logits are divided, negative ones multiplied, once however often a token occurred."""
    out = adjust([2.0, -2.0, 2.0, -2.0, 0.0], [0, 0, 1], 2, repetition_penalty=2.0)
    assert out == [1.0, -4.0, 2.0, -2.0, 0.0]


def test_frequency_and_presence_count_the_output_only():
    """Each occurrence in the output costs the frequency penalty, any occurrence the presence penalty."""
    out = adjust([0.0] * 4, [3, 3, 1, 1, 2], 2, frequency_penalty=0.5, presence_penalty=0.25)
    assert out == [0.0, -1.25, -0.75, 0.0]


def test_bias_comes_after_penalties():
    """The bias is added in full, whatever the penalties made of the logit."""
    assert adjust([4.0, 0.0], [0], 1, repetition_penalty=2.0, logit_bias=((0, 10.0), (1, -1.5))) == [12.0, -1.5]


def test_allowed_tokens():
    """Only allowed tokens stay; ids outside the vocabulary are nothing."""
    assert adjust([1.0, 2.0, 3.0], allowed_token_ids=(1, 99, -1)) == [-INF, 2.0, -INF]


@pytest.mark.parametrize(
    ("output", "banned"),
    [([], [4]), ([1], [2, 4]), ([1, 1], [2, 4]), ([3, 1], [2, 4]), ([5, 1, 2], [3, 4]), ([2], [4])],
)
def test_bad_sequences(output, banned):
    """A bad sequence's last token is masked exactly when the output ends with the others; the prompt does not count."""
    out = adjust([0.0] * 6, [1, *output], 1, bad_token_ids=((4,), (1, 2), (5, 1, 2, 3)))
    assert [i for i, logit in enumerate(out) if logit == -INF] == banned


def test_min_tokens_forbids_every_ending():
    """End-of-text and stop ids are masked until `min_tokens` are out, `ignore_eos` or not."""
    wishes = {"eos_ids": (0,), "stop_token_ids": (2, 77), "min_tokens": 2}
    assert adjust([1.0] * 4, [3, 3], 1, **wishes) == [-INF, 1.0, -INF, 1.0]
    assert adjust([1.0] * 4, [3, 3], 1, ignore_eos=True, **wishes) == [-INF, 1.0, -INF, 1.0]
    assert adjust([1.0] * 4, [3, 3, 3], 1, **wishes) == [1.0] * 4


def test_a_mask_that_leaves_nothing_gives_way():
    """Masks apply in order, and one that would rule out every token is skipped."""
    assert adjust([1.0, 2.0], eos_ids=(1,), allowed_token_ids=(1,), min_tokens=5) == [-INF, 2.0]
    assert adjust([1.0, 2.0], bad_token_ids=((0,), (1,))) == [1.0, 2.0]
    assert adjust([1.0, 2.0], allowed_token_ids=(7,)) == [1.0, 2.0]
