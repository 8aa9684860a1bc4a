"""The door: what passes can be finished, what does not is told why."""

import pytest

from headway.core import SamplingParams
from headway.engine.door import Extras
from headway.errors import InvalidRequest, PromptTooLong
from tests.support.engines import simulated_engine


@pytest.fixture(scope="module")
def engine():
    return simulated_engine(max_model_len=64, max_num_seqs=8)


def knock(engine, ids, **params):
    return engine.door.request("r", ids, SamplingParams(**params), 0.0, Extras())


def test_rest_of_the_context(engine):
    """Without max_tokens the output may fill the context."""
    assert knock(engine, [5] * 10, max_tokens=None).max_output == 54


def test_both_numbers_are_named(engine):
    """Prompt and output beyond the context: the message has both and the limit."""
    with pytest.raises(PromptTooLong, match=r"64 tokens.*70 \(50 in the prompt, 20") as caught:
        knock(engine, [5] * 50, max_tokens=20)
    assert caught.value.param == "max_tokens"
    with pytest.raises(PromptTooLong) as caught:
        knock(engine, [5] * 64, max_tokens=None)
    assert caught.value.param == "prompt"


@pytest.mark.parametrize(("n", "each"), [(1, ""), (2, " for each of 2 choices")])
def test_a_tenants_share_may_be_too_small(engine, n, each):
    """What the request needs, of how many choices if there are several, and what the tenant may hold."""
    share = 32 * n // engine.limits.block_size / engine.limits.num_blocks
    with pytest.raises(InvalidRequest, match=rf"need 50 tokens of cache{each}, but this tenant's share .* holds 32"):
        engine.door.request("r", [5] * 40, SamplingParams(max_tokens=10, n=n), 0.0, Extras(kv_most=share))


def test_exact_fit_passes(engine):
    """Prompt plus output may fill the context to the last token."""
    assert knock(engine, [5] * 44, max_tokens=20).max_total == 64


@pytest.mark.parametrize(
    ("params", "field"),
    [
        ({"logit_bias": ((10**6, 1.0),)}, "logit_bias"),
        ({"allowed_token_ids": (-1,)}, "allowed_token_ids"),
        ({"stop_token_ids": (10**9,)}, "stop_token_ids"),
        ({"n": 9}, "n"),
        ({"min_tokens": 60, "max_tokens": None}, "min_tokens"),
    ],
)
def test_fields_that_need_the_model(engine, params, field):
    """Ids outside the vocabulary and counts beyond the limits name their field."""
    with pytest.raises(InvalidRequest) as caught:
        knock(engine, [5] * 10, **params)
    assert caught.value.param == field


@pytest.mark.parametrize(
    ("words", "spellings"),
    [(["cat"], ["cat", " cat"]), ([" cat"], [" cat"]), (["\n"], ["\n"]), ([" "], [" "])],
)
def test_bad_words_are_forbidden_with_and_without_a_space(engine, words, spellings):
    """White space alone is a word too, and only itself."""
    request = knock(engine, [5] * 10, bad_words=tuple(words))
    assert request.params.bad_token_ids == tuple(tuple(engine.tokenizer.encode_text(text)) for text in spellings)


@pytest.mark.parametrize("ids", [[], [-1], [10**7]])
def test_bad_prompts(engine, ids):
    """An empty prompt, and ids that are no tokens."""
    with pytest.raises(InvalidRequest):
        knock(engine, ids)


def test_seed_is_drawn_where_chance_is_wanted(engine):
    """Sampling without a seed gets a fresh one each time; greedy needs none; a given one is kept."""
    first, second = (knock(engine, [5], temperature=1.0).params.seed for _ in range(2))
    assert None not in (first, second)
    assert first != second
    assert knock(engine, [5], temperature=0.0).params.seed is None
    assert knock(engine, [5], seed=7).params.seed == 7
