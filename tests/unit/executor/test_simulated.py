import pytest

from headway.clock import VirtualClock
from headway.core import Batch, Draw, Lane, SamplingParams
from headway.executor import Capacity, Executor, SimulatedExecutor

EOS = frozenset({7, 2})


def make(output_lengths=None, clock=None, step_time=lambda batch: 1.0, **settings):
    return SimulatedExecutor(8, 4, clock or VirtualClock(), step_time, output_lengths or {}, **settings)


def step(executor, *draws):
    lanes = [Lane(draw.seq_id, [0], len(draw.token_ids) - 1, list(range(8)), (draw,)) for draw in draws]
    return executor.launch(Batch(0, lanes)).result()


def run(executor, seq_id="a", num_tokens=5, choice=0, eos_ids=EOS, **params):
    """The first tokens of one sequence."""
    ids = [0]
    for _ in range(num_tokens):
        draw = Draw(seq_id, SamplingParams(max_tokens=64, **params), 0, choice, ids, 1, eos_ids)
        ids.append(step(executor, draw).tokens[seq_id][0].token_id)
    return ids[1:]


def test_is_an_executor():
    """It is the engine's `Executor`, and says what it holds."""
    executor: Executor = make(num_host_blocks=3, in_flight=2)
    assert executor.capacity() == Capacity(num_blocks=8, block_size=4, num_host_blocks=3, in_flight=2)


def test_ends_at_the_wanted_length():
    """The token that completes the wanted length is the smallest end-of-text id; none before it is one."""
    tokens = run(make({"a": 5}))
    assert tokens[4] == 2
    assert not EOS & set(tokens[:4])


@pytest.mark.parametrize("lengths", [{}, {"b": 1}, lambda seq_id: None], ids=["empty", "another's", "function"])
def test_no_wanted_length_no_end(lengths):
    """A sequence without wanted length never ends itself."""
    assert not EOS & set(run(make(lengths), num_tokens=7))


def test_choices_go_by_their_request():
    """A choice has its own length if one is given, else its request's."""
    executor = make({"a": 2, "a/1": 3})
    assert run(executor, "a/1", 3, choice=1)[2] == 2
    assert run(executor, "a/2", 3, choice=2)[1] == 2


def test_wishes_are_respected():
    """`min_tokens` puts the end off, `ignore_eos` takes it away, stop tokens are not made up, no end ids no end."""
    assert [token in EOS for token in run(make({"a": 2}), min_tokens=3)] == [False, False, False, True, True]
    assert not EOS & set(run(make({"a": 2}), ignore_eos=True))
    plain = run(make())
    assert plain[1] not in run(make(), stop_token_ids=(plain[1],))
    assert len(run(make({"a": 1}), eos_ids=frozenset())) == 5


def test_tokens_are_reproducible():
    """Tokens depend on sequence and position alone, within the vocabulary."""
    first, second = run(make(vocab_size=50), num_tokens=9), run(make(vocab_size=50), num_tokens=9)
    assert first == second
    assert max(first) < 50
    assert first != run(make(vocab_size=50), "b", num_tokens=9)


def test_time_of_single_steps():
    """A step starts when it is launched and ends `step_time` later; the clock moves only for results."""
    clock = VirtualClock(10.0)
    executor = make(clock=clock, step_time=lambda batch: 0.5 * batch.num_tokens)
    pending = executor.launch(Batch(0, [Lane("a", [0, 0, 0], 0, [0])]))
    assert clock.now() == 10.0
    assert pending.result().elapsed_s == 1.5
    assert clock.now() == 11.5
    clock.advance(5.0)
    executor.launch(Batch(1, [Lane("a", [0], 3, [0])])).result()
    assert clock.now() == 17.0


def test_time_of_a_pipeline():
    """Batches in flight end one after the other, in the order of their launch."""
    clock = VirtualClock()
    executor = make(clock=clock, in_flight=2)
    first, second = executor.launch(Batch(0, [])), executor.launch(Batch(1, []))
    first.result()
    assert clock.now() == 1.0
    third = executor.launch(Batch(2, []))
    second.result()
    assert clock.now() == 2.0
    third.result()
    assert clock.now() == 3.0


def test_logprobs_when_asked():
    """Sampled and prompt tokens get log probabilities exactly when asked, one for each row that has a next token."""
    executor = make()
    ids = [1, 2, 3, 4, 5]
    draw = Draw("a", SamplingParams(logprobs=0), 0, 0, ids, 5, EOS)
    first = executor.launch(Batch(0, [Lane("a", ids[:3], 0, [0, 1], (), 0, next_id=4)])).result()
    last = executor.launch(Batch(1, [Lane("a", ids[3:], 3, [0, 1], (draw,), 0)])).result()
    assert [len(result.prompt_logprobs["a"]) for result in (first, last)] == [3, 1]
    assert last.tokens["a"][0].logprobs.rank == 1
    assert step(executor, Draw("a", SamplingParams(), 0, 0, ids, 5, EOS)).tokens["a"][0].logprobs is None


def test_impossible_blocks_are_our_bug():
    """Too short a block table, an unknown block, or an unknown pair stops at once."""
    executor = make(num_host_blocks=1)
    for lane in (Lane("a", [0] * 5, 0, [1]), Lane("a", [0], 0, [8]), Lane("a", [], 0, [1])):
        with pytest.raises(AssertionError):
            executor.launch(Batch(0, [lane]))
    executor.swap_out([(7, 0)])
    executor.swap_in([(0, 7)])
    executor.copy_blocks([(0, 7)])
    for verb, pair in ((executor.swap_out, (7, 1)), (executor.swap_in, (1, 7)), (executor.copy_blocks, (0, 8))):
        with pytest.raises(AssertionError, match="no block"):
            verb([pair])
    executor.release(["unknown"])
    executor.close()
