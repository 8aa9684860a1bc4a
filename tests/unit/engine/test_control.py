"""Knobs turned while requests run: as a whole, between steps, with nothing lost."""

import asyncio
from dataclasses import replace

import pytest

from headway.core import FinishReason, SamplingParams
from headway.engine import AsyncLLM
from headway.errors import BadSetting, ExecutorFault, InvalidRequest, Overloaded
from headway.sched import policy_class
from tests.support.engines import Faulty, Gate, simulated_engine

PARAMS = SamplingParams(temperature=0.0, max_tokens=20, ignore_eos=True)


async def read(stream):
    return [delta async for delta in stream]


async def sent():
    """What a task just asked of the engine is on its way: the task has run, and one that it began."""
    for _ in range(2):
        await asyncio.sleep(0)


def gated_engine(**settings):
    gates = []
    engine = simulated_engine(wrap=lambda inner: gates.append(Gate(inner)) or gates[0], **settings)
    return engine, gates[0]


@pytest.fixture
def gated():
    return gated_engine(num_blocks=128)


async def test_limits_and_policy_change_under_load(gated):
    """Twelve requests run through five policies and several limits; each has its twenty tokens."""
    engine, gate = gated
    async with AsyncLLM(engine=engine) as llm:
        readers = [asyncio.create_task(read(llm.submit([5 + at] * 9, PARAMS))) for at in range(12)]
        await asyncio.to_thread(gate.launched.acquire, timeout=30)
        for patch in (
            {"policy": "headway", "max_num_seqs": 3, "itl_target_ms": 50},
            {"max_num_seqs": 64, "max_num_batched_tokens": 16, "itl_target_ms": 0},
            {"policy": "vllm", "policy_settings": {"order": "priority"}},
            {"policy": "sarathi_serve", "max_num_batched_tokens": 64, "policy_settings": {}},
            {"policy": "headway", "policy_settings": {"fair": False}},
        ):
            changing = asyncio.create_task(llm.control.change(patch, "a test"))
            await sent()
            gate.let_through(3)
            settings = await changing
            assert {name: settings[name] for name in patch if name != "policy_settings"} == {
                name: value for name, value in patch.items() if name != "policy_settings"
            }
        assert settings["policy_params"]["fair"] is False
        gate.open_for_good()
        answers = await asyncio.gather(*readers)
    assert all(sum(len(delta.token_ids) for delta in deltas) == 20 for deltas in answers)
    assert all(deltas[-1].finish_reason is FinishReason.LENGTH for deltas in answers)
    assert engine.core.scheduler.kv.num_free == 128


async def test_an_engine_that_died_answers_its_operator():
    """What waited when it died, and what is asked later: an error instead of waiting for ever."""
    gates = []
    engine = simulated_engine(
        wrap=lambda inner: gates.append(Gate(Faulty(inner, lambda _: AssertionError("a bug")))) or gates[0]
    )
    gate = gates[0]
    async with AsyncLLM(engine=engine) as llm:
        reading = asyncio.create_task(read(llm.submit([5] * 9, PARAMS)))
        await asyncio.to_thread(gate.launched.acquire, timeout=30)
        waiting = asyncio.create_task(llm.control.reset_cache("a test"))
        await sent()
        gate.let_through()
        with pytest.raises(ExecutorFault, match="the engine has stopped"):
            await asyncio.wait_for(waiting, 30)
        with pytest.raises(ExecutorFault, match="a bug"):
            await reading
        with pytest.raises(ExecutorFault, match="the engine has stopped"):
            await asyncio.wait_for(llm.control.change({"policy": "headway"}, "a test"), 30)


async def test_an_operator_who_gives_up_does_not_stop_the_engine(gated):
    """A call that was cancelled before its turn is not made; the engine goes on."""
    engine, gate = gated
    async with AsyncLLM(engine=engine) as llm:
        reading = asyncio.create_task(read(llm.submit([5] * 9, PARAMS)))
        await asyncio.to_thread(gate.launched.acquire, timeout=30)
        waiting = asyncio.create_task(llm.control.reset_cache("a test"))
        await sent()
        waiting.cancel()
        gate.open_for_good()
        assert sum(len(delta.token_ids) for delta in await reading) == 20
        assert await llm.control.reset_cache("a test") >= 0
        assert llm.is_alive


async def test_a_change_whose_caller_gives_up_is_whole(gated):
    """The policy between two steps and the settings that name it go together."""
    engine, gate = gated
    async with AsyncLLM(engine=engine) as llm:
        reading = asyncio.create_task(read(llm.submit([5] * 9, PARAMS)))
        await asyncio.to_thread(gate.launched.acquire, timeout=30)
        changing = asyncio.create_task(llm.control.change({"policy": "headway", "max_num_seqs": 3}, "a test"))
        await sent()
        changing.cancel()
        gate.open_for_good()
        await reading
        settings = await llm.control.change({"queue_timeout_ms": 1}, "a test")  # behind the first
        assert (settings["policy"], settings["max_num_seqs"]) == ("headway", 3)
        assert isinstance(engine.core.scheduler.policy, policy_class("headway"))


@pytest.mark.parametrize(
    ("patch", "what"),
    [
        ({}, "nothing to change"),
        ({"block_size": 8}, "block_size"),
        ({"max_num_seqs": 0}, "max_num_seqs"),
        ({"max_num_seqs": 8, "queue_timeout_ms": -1}, "queue_timeout_ms"),
        ({"max_num_seqs": "8"}, "max_num_seqs"),
        ({"max_num_seqs": True}, "max_num_seqs"),
        ({"itl_target_ms": "fast"}, "itl_target_ms"),
        ({"itl_target_ms": 50}, "itl_target_ms"),
        ({"itl_target_ms": list(range(2000))}, r"^itl_target_ms is \[0, 1, .{,120}; it must be one number"),
        ({"max_queued_kv": 1e308}, r"max_queued_kv is 1e\+308; it must be 0 \(no limit\) to 1e\+15"),
        ({"policy": "nonsense"}, "nonsense"),
        ({"policy": 3}, "policy"),
        ({"policy_settings": {"no_such": 1}}, "no_such"),
        ({"policy_settings": [1]}, "policy_settings"),
        ({"policy_settings": {"chunked": False}, "max_num_batched_tokens": 64}, "512"),
        ({"slo": {"ttft_p95": 3}}, "ttft_p95"),
        ({"slo": 3}, "slo"),
        ({"guardrail_actions": ["shout"]}, "shout"),
    ],
)
async def test_a_change_that_cannot_be_changes_nothing(gated, patch, what):
    """The mistake is named, and every other knob of the patch stays where it was."""
    engine, _ = gated
    async with AsyncLLM(engine=engine) as llm:
        before, policy = llm.control.settings(), engine.core.scheduler.policy
        with pytest.raises(BadSetting, match=what):
            await llm.control.change(patch, "a test")
        assert llm.control.settings() == before
        assert engine.core.scheduler.policy is policy


async def test_a_request_with_more_choices_than_places_keeps_the_limit_up(gated):
    """Lowering max_num_seqs below the choices of a request that is being served is refused, and the request ends.

    The door is as wide as before: two choices that come afterwards pass.
    """
    engine, gate = gated
    async with AsyncLLM(engine=engine) as llm:
        params = SamplingParams(temperature=0.0, max_tokens=5, ignore_eos=True, n=4)
        reader = asyncio.create_task(read(llm.submit([5, 6, 7], params)))
        await asyncio.to_thread(gate.launched.acquire, timeout=30)
        changing = asyncio.create_task(llm.control.change({"max_num_seqs": 2}, "a test"))
        await sent()
        gate.open_for_good()
        with pytest.raises(BadSetting, match="4 choices"):
            await changing
        assert llm.control.settings()["max_num_seqs"] == 256
        pair = await read(llm.submit([5, 6], replace(params, n=2)))
        assert [len([delta for delta in deltas if delta.finish_reason]) for deltas in (await reader, pair)] == [4, 2]


async def test_who_comes_during_a_change_can_be_served_after_it(gated):
    """Two choices that come while the limit falls to one are told at once: behind the change they would never run."""
    engine, gate = gated
    pair = SamplingParams(temperature=0.0, max_tokens=5, ignore_eos=True, n=2)
    async with AsyncLLM(engine=engine) as llm:
        first = asyncio.create_task(read(llm.submit([5, 6, 7], PARAMS)))
        await asyncio.to_thread(gate.launched.acquire, timeout=30)
        patch = {"policy": "sglang", "max_num_seqs": 1}  # which waits for room and refuses nobody
        changing = asyncio.create_task(llm.control.change(patch, "a test"))
        await sent()
        with pytest.raises(InvalidRequest, match="n is 2, but at most 1 sequences run at once"):
            llm.submit([5, 6], pair)
        second = asyncio.create_task(read(llm.submit([5, 6], PARAMS)))
        gate.open_for_good()
        assert (await changing)["max_num_seqs"] == 1
        for answer in await asyncio.gather(first, second):
            assert answer[-1].finish_reason is FinishReason.LENGTH


async def test_draining_one_tenant_or_all():
    """A drained tenant gets nothing new until it is resumed; others do. The whole server likewise."""
    async with AsyncLLM(engine=simulated_engine()) as llm:
        llm.control.drain("a test", "acme")
        with pytest.raises(Overloaded) as caught:
            llm.submit([5], PARAMS, tenant="acme")
        assert caught.value.cause == "draining"
        await read(llm.submit([5], PARAMS, tenant="tiny"))
        llm.control.resume("a test", "acme")
        await read(llm.submit([5], PARAMS, tenant="acme"))
        llm.control.drain("a test")
        assert not llm.is_ready
        with pytest.raises(Overloaded):
            llm.submit([5], PARAMS, tenant="tiny")
        llm.control.resume("a test")
        await read(llm.submit([5], PARAMS))
        assert llm.stats().refused == {"draining": 2}


async def test_the_cache_is_emptied():
    """A prompt that was cached is computed anew after a reset."""
    async with AsyncLLM(engine=simulated_engine()) as llm:
        cached = []
        for _ in range(2):
            await read(stream := llm.submit([5] * 20, PARAMS))
            cached.append(stream.usage.num_cached)
        assert await llm.control.reset_cache("a test") > 0
        await read(stream := llm.submit([5] * 20, PARAMS))
        assert cached[1] > 0
        assert stream.usage.num_cached == 0
        assert await llm.control.reset_cache("a test") > 0


async def test_a_request_explains_itself():
    """Its time line, what it waited for, and how the prediction turned out."""
    engine, gate = gated_engine(max_num_seqs=1)
    async with AsyncLLM(engine=engine) as llm:
        streams = [llm.submit([5 + at] * 9, PARAMS, request_id=f"cmpl-r{at}-0123456789ab") for at in range(3)]
        gate.open_for_good()
        await asyncio.gather(*map(read, streams))
        (story,) = llm.control.decisions.find("r2")
        (same,) = llm.control.decisions.find("cmpl-r2")
        assert story == same
        assert [move["what"] for move in story["time_line"]] == ["arrived", "admitted", "first token", "finished"]
        assert max(story["waited_s"], key=story["waited_s"].get) == "sequences"
        assert sum(story["waited_s"].values()) == pytest.approx(story["time_line"][1]["at_s"], abs=0.001)
        assert llm.control.decisions.find("r") == []
        assert llm.control.decisions.find("nobody") == []


async def test_aborting_by_the_clients_name(gated):
    """The operator ends a request under the name that the client knows."""
    engine, gate = gated
    async with AsyncLLM(engine=engine) as llm:
        reader = asyncio.create_task(read(llm.submit([5], PARAMS, request_id="chat-mine-0123456789ab")))
        await asyncio.to_thread(gate.launched.acquire, timeout=30)
        assert llm.control.abort("mine", "a test") == ["chat-mine-0123456789ab"]
        assert llm.control.abort("yours", "a test") == []
        gate.open_for_good()
        assert (await reader)[-1].finish_reason is FinishReason.ABORT


async def test_a_preemption_is_explained(gated):
    """By the change of policy that caused it; by memory, and at what price, where that was short."""
    engine, gate = gated
    async with AsyncLLM(engine=engine) as llm:
        reader = asyncio.create_task(read(llm.submit([5] * 9, PARAMS, request_id="one")))
        await asyncio.to_thread(gate.launched.acquire, timeout=30)
        changing = asyncio.create_task(llm.control.change({"policy": "sarathi"}, "a test"))
        await sent()
        gate.open_for_good()
        await asyncio.gather(changing, reader)
        (story,) = llm.control.decisions.find("one")
        assert [move["why"] for move in story["time_line"] if move["what"] == "preempted"] == ["policy change"]
    engine, gate = gated_engine(policy="headway", policy_settings={"overflow": "0"}, num_blocks=16)
    async with AsyncLLM(engine=engine) as llm:
        params = SamplingParams(temperature=0.0, max_tokens=45, ignore_eos=True)
        streams = [llm.submit([5 + at] * 9, params, request_id=f"r{at}") for at in range(4)]
        gate.open_for_good()
        await asyncio.gather(*map(read, streams))
        assert llm.stats().num_preemptions
        moves = [move for at in range(4) for move in llm.control.decisions.find(f"r{at}")[0]["time_line"]]
        preempted = [move for move in moves if move["what"] == "preempted"]
        assert {move["why"] for move in preempted} == {"memory"}
        assert all(move["price_s"] >= 0 for move in preempted)
