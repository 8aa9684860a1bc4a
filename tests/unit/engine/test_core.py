"""The core: steps, aborts in every state, failing steps; audited after each move."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.core import Finished, FinishReason, SamplingParams, SequenceFinished, StepRecord, TokenEmitted
from headway.engine.door import Extras
from headway.errors import ExecutorFault
from headway.sched.parts.steptime import StepTimeModel
from tests.support.engines import Faulty, simulated_engine


def request(engine, name, num_prompt, max_tokens, **params):
    ids = [3 + (len(name) * 7 + at) % 50 for at in range(num_prompt)]
    sampling = SamplingParams(max_tokens=max_tokens, temperature=0.0, **params)
    return engine.door.request(name, ids, sampling, engine.clock.now(), Extras())


def run(engine):
    while engine.core.has_work:
        engine.core.step()
        engine.core.check()


@pytest.fixture
def heard():
    return []


def listening(engine, heard):
    engine.core.listen(heard.extend)
    return engine


def test_tokens_come_in_order_and_once(heard):
    """Each output position is emitted once, in order, through preemptions too."""
    engine = listening(simulated_engine(num_blocks=9, max_model_len=36), heard)
    for name in "abcd":
        engine.core.submit(request(engine, name, 8, 20))
    run(engine)
    assert engine.core.scheduler.kv.num_free == 9
    for name in "abcd":
        tokens = [event.index for event in heard if isinstance(event, TokenEmitted) and event.seq_id == name]
        assert tokens == list(range(20))


@given(
    moves=st.lists(
        st.one_of(
            st.tuples(st.just("submit"), st.integers(1, 20), st.integers(1, 12), st.integers(1, 3)),
            st.tuples(st.just("abort"), st.integers(0, 12)),
            st.just(("step",)),
        ),
        max_size=40,
    ),
    prefix_cache=st.sampled_from(["hashed", "radix", "none"]),
)
def test_abort_in_every_state(moves, prefix_cache):
    """Whatever is aborted whenever, all blocks come back and every request ends exactly once."""
    heard = []
    engine = listening(simulated_engine(num_blocks=10, prefix_cache=prefix_cache, max_model_len=32), heard)
    names = []
    for move in moves:
        match move:
            case ("submit", num_prompt, max_tokens, n):
                names.append(f"r{len(names)}")
                engine.core.submit(request(engine, names[-1], num_prompt, max_tokens, n=n))
            case ("abort", at):
                engine.core.abort(f"r{at}")
                engine.core.abort(f"r{at}")
            case ("step",):
                engine.core.step()
        engine.core.check()
    run(engine)
    engine.core.flush_events()
    ended = [event.request.id for event in heard if isinstance(event, Finished)]
    assert sorted(ended) == sorted(names)
    assert engine.core.scheduler.kv.num_free == 10
    choices = [event.seq_id for event in heard if isinstance(event, SequenceFinished)]
    assert len(choices) == len(set(choices))


def test_abort_frees_blocks_at_once():
    """An abort between two steps has given the blocks back before the next one is planned."""
    engine = simulated_engine()
    engine.core.submit(request(engine, "a", 30, 50))
    engine.core.step()
    assert engine.core.scheduler.kv.num_free < 64
    engine.core.abort("a")
    assert engine.core.scheduler.kv.num_free == 64
    assert not engine.core.has_work


def test_culprit_fails_alone(heard):
    """A step that names its culprit ends that sequence; the neighbours lose nothing."""

    def plan(batch):
        guilty = any(lane.seq_id == "bad" and lane.start > 10 for lane in batch.lanes)
        return ExecutorFault("NaN in the logits of bad", seq_ids=("bad",)) if guilty else None

    engine = listening(simulated_engine(wrap=lambda inner: Faulty(inner, plan)), heard)
    for name in ("good", "bad", "fine"):
        engine.core.submit(request(engine, name, 8, 12))
    run(engine)
    reasons = {event.request.id: event.reason for event in heard if isinstance(event, Finished)}
    assert reasons == {"good": FinishReason.LENGTH, "bad": FinishReason.ERROR, "fine": FinishReason.LENGTH}
    good = [event.index for event in heard if isinstance(event, TokenEmitted) and event.seq_id == "good"]
    assert good == list(range(12))
    assert engine.core.scheduler.kv.num_free == 64


@pytest.mark.parametrize("policy", ["headway", "deadline", "fastserve"])
def test_no_policy_learns_from_a_step_that_broke(heard, monkeypatch, policy):
    """How long it took says nothing of what it was to compute; every other step is learnt from once."""
    seen = []
    monkeypatch.setattr(StepTimeModel, "observe", lambda self, load, seconds: seen.append((load.num_tokens, seconds)))
    failures = iter([None, None, ExecutorFault("once", seq_ids=("a",)), None, ExecutorFault("twice", seq_ids=("b",))])
    engine = listening(
        simulated_engine(policy=policy, wrap=lambda inner: Faulty(inner, lambda _: next(failures, None))), heard
    )
    for name in "abc":
        engine.core.submit(request(engine, name, 9, 12))
    run(engine)
    steps = [event for event in heard if isinstance(event, StepRecord) and event.grants]
    assert sum(bool(step.lost) for step in steps) == 2
    assert seen == [(sum(step.grants.values()), step.end_s - step.start_s) for step in steps if not step.lost]


def test_unknown_culprit_fails_the_batch_and_the_engine_goes_on(heard):
    """Without a name the whole batch ends with an error, and later requests are served."""
    failures = iter([ExecutorFault("out of memory")])
    engine = listening(simulated_engine(wrap=lambda inner: Faulty(inner, lambda _: next(failures, None))), heard)
    engine.core.submit(request(engine, "a", 8, 4))
    engine.core.submit(request(engine, "b", 8, 4, n=2))
    engine.core.step()
    engine.core.submit(request(engine, "c", 8, 4, n=2))
    run(engine)
    reasons = {event.request.id: event.reason for event in heard if isinstance(event, Finished)}
    assert reasons == {"a": FinishReason.ERROR, "b": FinishReason.ERROR, "c": FinishReason.LENGTH}
    assert engine.core.scheduler.kv.num_free == 64


def test_choices_share_the_prompt():
    """Three choices of one prompt hold its whole blocks once."""
    engine = simulated_engine(prefix_cache="none")
    engine.core.submit(request(engine, "a", 16, 8, n=3))
    engine.core.step()
    assert engine.core.scheduler.kv.num_free == 64 - 4
    engine.core.step()
    assert engine.core.scheduler.kv.num_free == 64 - 4 - 3


def test_cached_prompt_still_computes_one_token(heard):
    """A prompt that is cached whole computes at least one token, and says how many were found."""
    engine = listening(simulated_engine(), heard)
    for _ in range(2):
        engine.core.submit(request(engine, "a", 16, 2))
        run(engine)
    assert [event.num_cached for event in heard if isinstance(event, Finished)] == [0, 12]
