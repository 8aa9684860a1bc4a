import itertools

import numpy as np
import pytest

from headway.core import Batch, Draw, Lane, SamplingParams
from headway.errors import ExecutorFault
from headway.executor import Capacity, Executor
from headway.executor.reference import ReferenceExecutor
from headway.models import random_weights
from tests.support.tiny_model import tiny_config

BLOCK_SIZE = 4
WEIGHTS = random_weights(tiny_config(), seed=3)
GREEDY = SamplingParams(temperature=0.0, max_tokens=64)


def make_executor(num_blocks=32, num_host_blocks=4):
    executor = ReferenceExecutor(
        WEIGHTS, WEIGHTS.config, num_blocks=num_blocks, block_size=BLOCK_SIZE, num_host_blocks=num_host_blocks
    )
    executor.cache.poison(list(range(num_blocks)))
    return executor


def prompt(length, seed=0):
    return np.random.default_rng(seed).integers(0, WEIGHTS.config.vocab_size, length).tolist()


def solo_logits(ids):
    """Logits of every position, computed at once and alone."""
    return make_executor().logits(Batch(0, [Lane("solo", ids, 0, list(range(32)))]))


def lane(seq_id, ids, start, stop, table, params=None):
    draws = (Draw(seq_id, params, 7, 0, ids, 1, frozenset()),) if params else ()
    return Lane(seq_id, ids[start:stop], start, table, draws)


def generate(executor, ids, table, num_tokens, params=GREEDY):
    """Tokens of one sequence that runs alone."""
    ids, start = list(ids), 0
    for _ in range(num_tokens):
        step = executor.launch(Batch(0, [lane("a", ids, start, len(ids), table, params)]))
        start = len(ids)
        ids.append(step.result().tokens["a"][0].token_id)
    return ids


def test_is_an_executor():
    """It is the engine's `Executor`, and says what it holds."""
    executor: Executor = make_executor()
    assert executor.capacity() == Capacity(num_blocks=32, block_size=4, num_host_blocks=4, in_flight=1)


@pytest.mark.parametrize("cuts", [[5, 19], [1, 2, 3, 4], [4, 8, 16], [18]], ids=str)
def test_chunks_equal_the_whole_prompt(cuts):
    """A prompt computed in chunks, over blocks in any order, has the logits of the prompt computed at once."""
    ids, executor, table = prompt(20), make_executor(), [9, 3, 30, 0, 17]
    bounds = [0, *cuts, len(ids)]
    parts = [executor.logits(Batch(0, [lane("a", ids, a, b, table)])) for a, b in itertools.pairwise(bounds) if b > a]
    np.testing.assert_allclose(np.concatenate(parts), solo_logits(ids), atol=1e-4)


def test_mixed_batch_equals_solo_runs():
    """A decode, a chunk with a prefix and a fresh prompt in one batch get the logits of their solo runs."""
    executor = make_executor()
    a, b, c = prompt(6, 1), prompt(8, 2), prompt(2, 3)
    executor.logits(Batch(0, [lane("a", a, 0, 5, [20, 7]), lane("b", b, 0, 5, [1, 12])]))
    mixed = executor.logits(
        Batch(1, [lane("a", a, 5, 6, [20, 7]), lane("b", b, 5, 8, [1, 12]), lane("c", c, 0, 2, [5])])
    )
    expected = [solo_logits(a)[5:], solo_logits(b)[5:], solo_logits(c)]
    np.testing.assert_allclose(mixed, np.concatenate(expected), atol=1e-4)


def test_poisoned_blocks_stay_poisoned():
    """A step reads and writes no slot but its sequences' own: all others are still NaN."""
    executor = make_executor()
    generate(executor, prompt(6), [4, 2], 2)
    written = np.isfinite(executor.cache.keys_LBPKD[0, :, :, 0, 0])
    assert written.sum() == 7
    assert written[4].all()
    assert written[2].tolist() == [True, True, True, False]


def test_padding_and_wasted_rows_change_nothing():
    """Rows computed for nothing change neither tokens nor the cache."""
    ids = prompt(7)
    plain, padded = make_executor(), make_executor()
    batch = Batch(0, [lane("a", ids, 0, 7, [3, 8], GREEDY)])
    wasteful = Batch(0, [lane("a", ids, 0, 7, [3, 8], GREEDY)], num_wasted_rows=3)
    wasteful.lanes[0].padding = 5
    assert plain.launch(batch).result().tokens == padded.launch(wasteful).result().tokens
    np.testing.assert_allclose(plain.cache.values_LBPKD, padded.cache.values_LBPKD, atol=1e-5)
    assert padded.launch(Batch(0, [], num_wasted_rows=4)).result().tokens == {}
    assert padded.launch(Batch(0, [])).result().tokens == {}


def test_swap_brings_a_sequence_back():
    """Blocks go to the host and come back elsewhere; the sequence goes on as if nothing had been."""
    ids, executor = prompt(6), make_executor()
    expected = generate(make_executor(), ids, [0, 1, 2], 4)
    ids = generate(executor, ids, [10, 11], 1)
    executor.launch(Batch(1, [], swap_out=[(10, 3), (11, 0)])).result()
    executor.cache.poison([10, 11])
    swapped_in = Batch(2, [lane("a", ids, 6, 7, [21, 22], GREEDY)], swap_in=[(3, 21), (0, 22)])
    ids.append(executor.launch(swapped_in).result().tokens["a"][0].token_id)
    for start in (7, 8):
        step = executor.launch(Batch(3, [lane("a", ids, start, start + 1, [21, 22, 23], GREEDY)]))
        ids.append(step.result().tokens["a"][0].token_id)
    assert ids == expected


def test_copies_come_after_swaps_and_before_the_step():
    """A fork's copy, of a block that the same batch swaps in, is complete when the step writes behind it."""
    ids, executor = prompt(6), make_executor()
    expected = generate(make_executor(), ids, [0, 1], 2)
    ids = generate(executor, ids, [10, 11], 1)
    executor.swap_out([(11, 2)])
    executor.cache.poison([11])
    batch = Batch(1, [lane("a", ids, 6, 7, [10, 31], GREEDY)], swap_in=[(2, 30)], copies=[(30, 31)])
    ids.append(executor.launch(batch).result().tokens["a"][0].token_id)
    assert ids == expected


def test_a_swap_out_saves_what_the_step_overwrites():
    """Blocks swapped out in a batch may be written by the same batch."""
    executor = make_executor()
    ids = generate(executor, prompt(6), [10, 11], 1)
    other = prompt(5, 9)
    executor.launch(Batch(1, [lane("b", other, 0, 5, [10, 11])], swap_out=[(10, 0), (11, 1)])).result()
    step = executor.launch(Batch(2, [lane("a", ids, 6, 7, [5, 6], GREEDY)], swap_in=[(0, 5), (1, 6)]))
    assert [*ids, step.result().tokens["a"][0].token_id] == generate(make_executor(), ids[:6], [0, 1], 2)


def test_prompt_logprobs_over_chunks():
    """Each prompt row scores the token after it, whatever the chunking; the alternatives hold the likeliest."""
    ids, executor = prompt(150), make_executor(num_blocks=64)
    table = list(range(40))
    first, second = Lane("a", ids[:70], 0, table, (), 2, next_id=ids[70]), lane("a", ids, 70, 150, table, GREEDY)
    second.prompt_logprobs = 2
    second.draws[0].num_prompt = len(ids)
    steps = [executor.launch(Batch(0, [part])).result() for part in (first, second)]
    found = [*steps[0].prompt_logprobs["a"], *steps[1].prompt_logprobs["a"]]
    fresh = make_executor(num_blocks=64).logits(Batch(0, [Lane("a", ids, 0, table)])).astype(np.float64)
    logprobs = fresh - np.logaddexp.reduce(fresh, axis=1, keepdims=True)
    assert len(found) == 149
    assert [entry.logprob for entry in found] == pytest.approx(
        [logprobs[i, token_id] for i, token_id in enumerate(ids[1:])], abs=1e-4
    )
    assert [entry.top[0][0] for entry in found] == logprobs[:-1].argmax(axis=1).tolist()
    assert all(len(entry.top) == 2 for entry in found)


def test_branches_draw_from_one_row():
    """The choices of a request draw their first tokens from the one prompt, each its own."""
    ids = prompt(5)
    params = SamplingParams(temperature=2.0, n=6)
    draws = tuple(Draw(f"a/{choice}", params, 1, choice, ids, 5, frozenset()) for choice in range(6))
    tokens = make_executor().launch(Batch(0, [Lane("a", ids, 0, [0, 1], draws)])).result().tokens
    assert set(tokens) == {f"a/{choice}" for choice in range(6)}
    assert len({entry[0].token_id for entry in tokens.values()}) > 1


def test_nan_is_a_fault_of_its_sequence():
    """A sequence that reads a poisoned block is named, and the same step without it still works afterwards."""
    executor = make_executor()
    good, bad = prompt(5, 1), prompt(6, 2)
    lanes = [lane("good", good, 0, 5, [0, 1], GREEDY), lane("bad", bad, 5, 6, [2, 3], GREEDY)]
    pending = executor.launch(Batch(0, lanes))
    with pytest.raises(ExecutorFault) as caught:
        pending.result()
    assert caught.value.seq_ids == ("bad",)
    assert executor.launch(Batch(1, lanes[:1])).result().tokens["good"][0].token_id == solo_logits(good)[-1].argmax()
    scored = Lane("bad", bad[5:], 5, [2, 3], (), 0, next_id=1)
    with pytest.raises(ExecutorFault, match="bad"):
        executor.launch(Batch(2, [scored])).result()


def test_an_unknown_token_is_a_fault():
    """What breaks inside a step comes out of `result`, not of `launch`, and the executor goes on."""
    executor = make_executor()
    pending = executor.launch(Batch(0, [Lane("a", [1_000_000], 0, [0])]))
    with pytest.raises(ExecutorFault, match="IndexError"):
        pending.result()
    assert generate(executor, prompt(5), [0, 1], 1)


def test_release_and_close_are_idempotent():
    """Unknown sequences may be released, and closing twice is fine."""
    executor = make_executor()
    executor.release(["never seen"])
    executor.close()
    executor.close()
