import math
from collections import Counter

import numpy as np
import pytest

from headway.core import Draw, SamplingParams
from headway.errors import ExecutorFault
from headway.executor.sampling import draw_token, kept_tokens, likeliest, sample, score, uniform


def make_draw(seed=0, choice=0, position=0, seq_id="a", **params):
    return Draw(seq_id, SamplingParams(**params), seed, choice, range(1 + position), 1, frozenset())


def rough_logits(seed, num_tokens):
    """Random logits with many ties."""
    return np.round(np.random.default_rng(seed).normal(0, 2, num_tokens), 1).astype(np.float32)


def slow_distribution(params, logits):
    """id -> probability, by the book: sort everything, filter, normalise."""
    scaled = {i: float(logit) / params.temperature for i, logit in enumerate(logits)}
    best = max(scaled.values())
    weights = {i: math.exp(logit - best) for i, logit in scaled.items()}
    order = sorted((i for i in weights if weights[i] >= params.min_p), key=lambda i: (-logits[i], i))
    if params.top_k > 0:
        order = order[: params.top_k]
    total, held, kept = sum(weights[i] for i in order), 0.0, []
    for i in order:
        if held >= params.top_p * total and params.top_p < 1:
            break
        held += weights[i]
        kept.append(i)
    total = sum(weights[i] for i in kept)
    return {i: weights[i] / total for i in sorted(kept)}


FILTERS = [
    {},
    {"temperature": 0.3},
    {"temperature": 2.0, "top_k": 5},
    {"top_k": 1},
    {"top_k": -1, "top_p": 0.9},
    {"top_k": 10_000},
    {"top_p": 0.5},
    {"top_p": 1e-6},
    {"top_p": 0.999999},
    {"min_p": 0.05},
    {"min_p": 1.0},
    {"temperature": 0.7, "min_p": 0.01, "top_k": 40, "top_p": 0.8},
]


@pytest.mark.parametrize("wishes", FILTERS, ids=str)
@pytest.mark.parametrize("num_tokens", [1, 7, 300, 5000])
def test_kept_tokens_equal_the_slow_way(wishes, num_tokens):
    """Temperature, min_p, top_k and top_p keep the tokens and shares that sorting everything gives, ties included."""
    params = SamplingParams(**wishes)
    logits = rough_logits(num_tokens, num_tokens)
    ids, weights = kept_tokens(params, logits)
    expected = slow_distribution(params, logits)
    assert ids.tolist() == list(expected)
    np.testing.assert_allclose(weights / weights.sum(), list(expected.values()), rtol=1e-4)


@pytest.mark.parametrize("temperature", [1e-300, 1e-45, 1e-38, 1e-30])
@pytest.mark.filterwarnings("error")
def test_a_temperature_next_to_nothing_keeps_the_likeliest(temperature):
    """Even one that single precision cannot tell from 0 leaves the likeliest tokens their weight, and no other any."""
    ids, weights = kept_tokens(SamplingParams(temperature=temperature), np.array([1, 3, 2, 3], np.float32))
    assert dict(zip(ids.tolist(), weights.tolist(), strict=True)) == {0: 0.0, 1: 1.0, 2: 0.0, 3: 1.0}


def test_top_p_looks_past_its_first_guess():
    """A flat distribution needs more tokens than are sorted at first; the fewest that hold the share are kept."""
    ids, _ = kept_tokens(SamplingParams(top_p=0.9), np.zeros(50_000, np.float32))
    assert ids.tolist() == list(range(45_000))


@pytest.mark.parametrize("count", [1, 2, 5, 49, 50, 80])
def test_likeliest_prefers_lower_places(count):
    """The largest entries, largest first; among equals the lower place comes first."""
    logits = rough_logits(3, 50)
    expected = sorted(range(50), key=lambda i: (-logits[i], i))[:count]
    assert likeliest(logits, count).tolist() == expected


def philox(key, counter):
    """Philox 4x64-10 as published: the four outputs of one counter."""
    mask, (k0, k1), (c0, c1, c2, c3) = 2**64 - 1, key, counter
    for _ in range(10):
        wide0, wide1 = 0xD2E7470EE14C6C93 * c0, 0xCA5A826395121157 * c2
        c0, c1, c2, c3 = (wide1 >> 64) ^ c1 ^ k0, wide1 & mask, (wide0 >> 64) ^ c3 ^ k1, wide0 & mask
        k0, k1 = (k0 + 0x9E3779B97F4A7C15) & mask, (k1 + 0xBB67AE8584CAA73B) & mask
    return c0, c1, c2, c3


@pytest.mark.parametrize(("seed", "choice", "position"), [(0, 0, 0), (42, 3, 17), (-1, 127, 8191), (2**63 - 1, 0, 1)])
def test_the_random_number_is_the_published_generator(seed, choice, position):
    """A draw's number is Philox of (seed, choice) at position + 1: any implementation can reproduce it."""
    word = philox((seed % 2**64, choice), (position + 1, 0, 0, 0))[0]
    assert uniform(make_draw(seed, choice, position)) == (word >> 11) / 2**53


@pytest.mark.parametrize("num", [1500, pytest.param(8000, marks=pytest.mark.slow)])
def test_draws_follow_the_distribution(num):
    """Draws over seeds, and as many over positions, fit the probabilities (chi-square, 12 tokens, p > 0.001)."""
    logits = np.random.default_rng(5).normal(0, 1, 12).astype(np.float32)
    shares = np.array(list(slow_distribution(SamplingParams(temperature=0.8), logits).values()))
    for draws in (
        [make_draw(seed=i, temperature=0.8) for i in range(num)],
        [make_draw(seed=9, position=i, temperature=0.8) for i in range(num)],
    ):
        counts = Counter(draw_token(draw, logits).token_id for draw in draws)
        seen = np.array([counts[i] for i in range(12)])
        assert ((seen - num * shares) ** 2 / (num * shares)).sum() < 31.26


def test_choices_and_seeds_draw_apart():
    """Other seeds, choices and positions give other numbers; the same ones the same number."""
    numbers = {uniform(make_draw(s, c, p)) for s in range(5) for c in range(5) for p in range(5)}
    assert len(numbers) == 125
    assert uniform(make_draw(3, 2, 1)) == uniform(make_draw(3, 2, 1))


def test_rows_do_not_depend_on_neighbours():
    """A draw gives the same token and the same bits of log probability alone and in any company."""
    rng = np.random.default_rng(2)
    logits = rng.normal(0, 3, (6, 997)).astype(np.float32)
    wishes = [
        {"temperature": 0.0},
        {"temperature": 1.0, "logprobs": 3},
        {"temperature": 0.0, "logprobs": 1, "repetition_penalty": 1.3},
        {"top_k": 20, "top_p": 0.9, "logprobs": 0},
        {"min_p": 0.1, "presence_penalty": 1.0},
        {"temperature": 0.0, "logit_bias": ((5, 100.0),)},
    ]
    draws = [make_draw(i, 0, 3, f"s{i}", **wish) for i, wish in enumerate(wishes)]
    together = sample(draws, range(6), logits)
    backwards = sample(draws[::-1], range(5, -1, -1), logits)[::-1]
    alone = [sample([draw], [0], logits[i : i + 1])[0] for i, draw in enumerate(draws)]
    assert together == backwards == alone
    assert together[5].token_id == 5


def test_branches_share_a_row():
    """Several draws read the same row, each with its own number."""
    logits = np.zeros((2, 1000), np.float32)
    tokens = sample([make_draw(1, choice) for choice in range(4)], [1, 1, 1, 1], logits)
    assert len({token.token_id for token in tokens}) == 4


def test_greedy_takes_the_lowest_of_equals():
    """Ties go to the lower id, on the fast way and on the slow one."""
    logits = np.array([[0.0, 3.0, 3.0, 1.0]], np.float32)
    assert sample([make_draw(temperature=0.0)], [0], logits)[0].token_id == 1
    assert sample([make_draw(temperature=0.0, logit_bias=((0, 3.0),))], [0], logits)[0].token_id == 0


def test_tiny_temperature_is_greedy():
    """A temperature near 0 overflows nothing and takes the likeliest."""
    logits = rough_logits(8, 100)
    draw = make_draw(temperature=1e-30)
    assert draw_token(draw, logits).token_id == int(logits.argmax())


def test_only_kept_tokens_are_drawn():
    """Tokens of weight 0 are never drawn, even by a number that rounds to 1."""
    logits = np.array([-np.inf, 0.0, -np.inf, 0.0, -200.0], np.float32)
    assert {draw_token(make_draw(seed), logits).token_id for seed in range(200)} == {1, 3}


def test_logprobs_are_the_models():
    """Log probability, rank and alternatives come from the raw logits, whatever the wishes changed."""
    logits = np.array([1.0, 3.0, 2.0, 2.0], np.float32)
    draw = make_draw(temperature=0.0, logprobs=2, logit_bias=((0, 50.0),))
    token = sample([draw], [0], logits[None])[0]
    total = math.log(sum(map(math.exp, logits.tolist())))
    assert token.token_id == 0
    assert token.logprobs.logprob == pytest.approx(1.0 - total, abs=1e-6)
    assert token.logprobs.rank == 4
    assert [i for i, _ in token.logprobs.top] == [1, 2]
    assert [p for _, p in token.logprobs.top] == pytest.approx([3.0 - total, 2.0 - total], abs=1e-6)
    assert [score(logits, i, 0).rank for i in range(4)] == [4, 1, 2, 2]
    assert score(logits, 1, 0).top == ()
    assert sample([make_draw(temperature=0.0)], [0], logits[None])[0].logprobs is None


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_unusable_logits_name_their_sequences(bad):
    """NaN or infinity is a fault of exactly the sequences that read the row."""
    logits = np.zeros((3, 5), np.float32)
    logits[1, 3] = bad
    draws = [make_draw(seq_id=name, temperature=t) for name, t in (("a", 0), ("b", 0), ("b/1", 1), ("c", 1))]
    with pytest.raises(ExecutorFault, match=r"b, b/1") as caught:
        sample(draws, [0, 1, 1, 2], logits)
    assert caught.value.seq_ids == ("b", "b/1")


def test_nothing_to_draw():
    """A step without draws gives no tokens."""
    assert sample([], [], np.empty((0, 5), np.float32)) == []
