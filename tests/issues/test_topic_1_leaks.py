"""Blocks, places and entries that somebody forgot to give back, after any ending in any state."""

import asyncio
import gc
from itertools import product

import pytest

from headway.core import Cause, FinishReason, SamplingParams
from headway.engine import AsyncLLM
from headway.errors import ExecutorFault, PromptTooLong
from headway.sched import POLICIES
from tests.support.effort import sample
from tests.support.engines import Gate, simulated_engine
from tests.support.storm import Storm
from tests.support.trial import Trial, own_ids

SWAPPING = {"policy": "vllm_v0", "policy_settings": {"preemption": "swap", "mode": "chunked"}, "host_memory": 4096}
PREEMPTING = {"recompute": {}, "swap": SWAPPING, "partial or swap": {"policy": "headway", "host_memory": 4096}}


@pytest.mark.parametrize("n", [1, 4])
@pytest.mark.parametrize("num_before", range(6))
def test_a_prefill_stops_at_the_next_step(num_before, n):
    """PUBLIC_ISSUES 1.4, 1.6: of 20 chunks none is computed any more once the client left, for one choice or four."""
    trial = Trial(num_blocks=80, max_num_batched_tokens=8)
    trial.submit("long", 160, 20, n=n)
    trial.step(num_before)
    trial.abort("long")
    assert not trial.core.has_work
    trial.submit("next", 8, 2)
    trial.step()
    assert trial.steps[-1].grants == {"next": 8}
    trial.finish()
    assert sum(step.grants.get("long", 0) for step in trial.steps) == 8 * num_before


@pytest.mark.parametrize("n", [2, 4])
def test_an_abort_between_the_tokens_ends_all_choices(n):
    """PUBLIC_ISSUES 1.6: shared blocks of a prompt are freed once, and no table remembers a choice."""
    trial = Trial()
    trial.submit("many", 10, 20, n=n)
    trial.step(3)
    trial.abort("many")
    assert not trial.core.has_work
    trial.finish()
    assert set(trial.reasons.values()) == {FinishReason.ABORT}


def reach(state, trial):
    """Bring request `x` into a state, beside a neighbour that has the memory or the step."""
    match state:
        case "waiting":
            trial.submit("first", 30, 10)
            trial.step()
            trial.submit("x", own_ids("first", 30), 10)
        case "prefilling":
            trial.submit("x", 40, 10)
            trial.step(2)
        case "decoding":
            trial.submit("x", 8, 30, n=2)
            trial.step(3)
        case "preempted":
            trial.submit("first", 16, 60)
            trial.submit("x", 16, 60)
            trial.submit("y", 16, 60)
            for _ in range(100):
                if trial.num_preemptions["x"]:
                    break
                trial.step()
            assert trial.num_preemptions["x"], "the memory sufficed: this scene tests nothing"


def end(how, trial):
    """End `x`; whether that must have succeeded."""
    match how:
        case "abort":
            trial.abort("x")
        case "deadline":
            trial.core.abort("x", FinishReason.DEADLINE)
        case "refuse":
            trial.core.refuse("x", "as many wait as may", Cause.QUEUE_FULL)
        case "fault":
            trial.step(3)


@pytest.mark.parametrize("prefix_cache", ["hashed", "radix"])
@pytest.mark.parametrize("how", ["abort", "deadline", "refuse", "fault"])
@pytest.mark.parametrize("state", ["waiting", "prefilling", "decoding", *(f"preempted: {how}" for how in PREEMPTING)])
def test_every_exit_from_every_state(state, how, prefix_cache):
    """PUBLIC_ISSUES 1.7: whoever goes, from wherever, for whatever reason, holds nothing afterwards."""
    state, _, way = state.partition(": ")
    armed = []

    def fault(batch):
        guilty = armed and any(lane.seq_id == "x" for lane in batch.lanes)
        return ExecutorFault("broken", seq_ids=("x",)) if guilty else None

    settings = PREEMPTING.get(way, {})
    trial = Trial(num_blocks=30, prefix_cache=prefix_cache, max_num_batched_tokens=16, fault=fault, **settings)
    reach(state, trial)
    armed.append(True)
    end(how, trial)
    trial.finish()
    if how == "abort":
        assert trial.endings["x"].reason is FinishReason.ABORT


def test_a_prompt_that_waits_leaves_nothing_with_the_prefix_cache():
    """PUBLIC_ISSUES 1.7: what it keeps of those whom it was asked about, goes when they end or are aborted."""
    trial = Trial(num_blocks=30, prefix_cache="hashed", max_num_batched_tokens=16)
    for name in ("first", "second", "third"):
        trial.submit(name, [*own_ids("first", 30), *own_ids(name, 5)], 40)
    trial.step(4)
    assert trial.core.scheduler.kv.prefix._chains
    trial.abort("third")
    trial.finish()
    gc.collect()
    assert not trial.core.scheduler.kv.prefix._chains


@pytest.mark.parametrize("seed", range(12))
def test_ends_while_batches_are_on_their_way(seed):
    """PUBLIC_ISSUES 1.7, 14.3: with three batches in flight, aborts and faults meet what is being computed."""
    Storm(seed, policy="orca", settings={"num_workers": "3"}, in_flight=3).run(num_moves=70)


@pytest.mark.parametrize("is_broken", [False, True])
def test_an_abort_in_flight_counts_once(is_broken):
    """PUBLIC_ISSUES 2.13: aborted twice while it is computed, and that step may break: it ends once."""
    trial = Trial(
        policy="orca",
        policy_settings={"num_workers": "2"},
        in_flight=2,
        fault=lambda batch: ExecutorFault("broken") if is_broken else None,
    )
    trial.submit("x", 8, 4)
    trial.step()
    assert trial.core.scheduler.queues.running[0].num_in_flight
    trial.abort("x")
    trial.finish()
    assert trial.endings["x"].reason is FinishReason.ABORT


def test_a_turn_beyond_the_limit_leaves_the_conversation_alone():
    """PUBLIC_ISSUES 1.8: after a turn that is too long, the last good one finds what it found before."""
    trial = Trial(num_blocks=64, max_model_len=100)
    said = []
    for turn in range(5):
        said += own_ids(f"turn{turn}", 14)
        trial.submit(f"t{turn}", list(said), 4)
        trial.finish()
        said += trial.ids(f"t{turn}")
    with pytest.raises(PromptTooLong):
        trial.submit("too long", [*said, *own_ids("more", 14)], 4)
    for name in ("again", "once more"):
        trial.submit(name, list(trial.requests["t4"].prompt_ids), 4)
        trial.finish()
    assert trial.ids("again") == trial.ids("t4")
    assert trial.cached["again"] == trial.cached["once more"] == [84]


@pytest.mark.parametrize(("policy", "block_size"), sample(product(sorted(POLICIES), (1, 4, 16, 17)), every=3))
def test_whatever_happened_an_idle_pool_is_whole(policy, block_size):
    """PUBLIC_ISSUES 1.9: free + evictable = all, for every block size and policy, after a storm of everything."""
    Storm(block_size, policy=policy, block_size=block_size).run(num_moves=60)


@pytest.mark.parametrize(
    "options",
    [{}, {"logprobs": 3}, {"n": 3}, {"prompt_logprobs": 2}, {"stop": ("x", "yz")}, {"n": 2, "logprobs": 0, "seed": 4}],
    ids=str,
)
def test_an_abort_does_not_care_what_was_asked_for(options):
    """PUBLIC_ISSUES 1.13: after each number of steps, with each option."""
    for num_before in range(5):
        trial = Trial(max_num_batched_tokens=8)
        trial.submit("x", 20, 10, **options)
        trial.submit("y", 6, 6, **options)
        trial.step(num_before)
        trial.abort("x")
        trial.finish()


async def test_the_same_client_breaks_off_and_comes_back():
    """PUBLIC_ISSUES 1.11: an id is free again once its stream ended, fifty times over."""
    gates = []
    engine = simulated_engine(wrap=lambda inner: gates.append(Gate(inner)) or gates[0])
    async with AsyncLLM(engine=engine) as llm:
        for _ in range(50):
            stream = llm.submit([5, 6, 7], SamplingParams(max_tokens=200, ignore_eos=True), request_id="me")
            gates[0].let_through()
            await anext(aiter(stream))
            stream.abort()
            gates[0].let_through()  # for a step that was begun before the abort was read
            deltas = await asyncio.wait_for(_rest(stream), 30)
            assert deltas[-1].finish_reason is FinishReason.ABORT
        assert llm.stats().num_free_blocks == 64


async def _rest(stream):
    return [delta async for delta in stream]
