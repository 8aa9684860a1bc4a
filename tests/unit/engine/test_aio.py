"""The asyncio face: streams, aborts, draining, and an engine that dies."""

import asyncio

import pytest

from headway.core import FinishReason, SamplingParams
from headway.engine import AsyncLLM
from headway.errors import ExecutorFault, InvalidRequest, Overloaded
from tests.support.engines import Faulty, Gate, simulated_engine

GREEDY = SamplingParams(temperature=0.0, max_tokens=8)


async def collect(stream):
    return [delta async for delta in stream]


def ids_of(deltas, choice=0):
    return [token for delta in deltas if delta.choice == choice for token in delta.token_ids]


async def test_stream_gives_every_token_and_usage():
    """All tokens arrive in order, the last delta has the reason, and usage adds up."""
    async with AsyncLLM(engine=simulated_engine()) as llm:
        stream = llm.submit([5, 6, 7], GREEDY)
        deltas = await collect(stream)
    assert len(ids_of(deltas)) == 8
    assert [delta.finish_reason for delta in deltas if delta.finish_reason] == [FinishReason.LENGTH]
    assert (stream.usage.num_prompt, stream.usage.num_output) == (3, 8)


async def test_many_streams_at_once():
    """Fifty requests in a small pool all end, each with its own tokens."""
    async with AsyncLLM(engine=simulated_engine(num_blocks=12, max_model_len=40)) as llm:
        streams = [llm.submit([5 + at % 20] * 9, GREEDY, request_id=f"r{at}") for at in range(50)]
        results = await asyncio.gather(*map(collect, streams))
        assert all(len(ids_of(deltas)) == 8 for deltas in results)
        assert llm.stats().num_free_blocks == 12
        assert llm.stats().num_output_tokens == 400


async def test_abort_is_idempotent_and_ends_the_stream():
    """Aborted in the middle, twice: one final delta with the reason, and the blocks are back."""
    gate = []
    engine = simulated_engine(wrap=lambda inner: gate.append(Gate(inner)) or gate[0])
    async with AsyncLLM(engine=engine) as llm:
        stream = llm.submit([5, 6, 7], SamplingParams(temperature=0.0, max_tokens=100))
        gate[0].let_through(3)
        await asyncio.to_thread(gate[0].launched.acquire, timeout=30)
        stream.abort()
        stream.abort()
        gate[0].open_for_good()
        deltas = await collect(stream)
        assert [delta.finish_reason for delta in deltas if delta.finish_reason] == [FinishReason.ABORT]
        assert llm.stats().num_free_blocks == 64
    stream.abort()


async def test_leaving_the_iterator_aborts():
    """A consumer that stops reading and closes the iterator frees the request's blocks."""
    async with AsyncLLM(engine=simulated_engine()) as llm:
        iterator = aiter(llm.submit([5, 6, 7], SamplingParams(temperature=0.0, max_tokens=200)))
        await anext(iterator)
        await iterator.aclose()
        assert await llm.drained(30.0)
        assert llm.stats().num_free_blocks == 64


async def test_closing_ends_every_stream():
    """Closing aborts what runs; its stream ends with that reason instead of hanging."""
    gate = []
    llm = AsyncLLM(engine=simulated_engine(wrap=lambda inner: gate.append(Gate(inner)) or gate[0]))
    llm.start()
    reader = asyncio.create_task(collect(llm.submit([5, 6, 7], GREEDY)))
    await asyncio.to_thread(gate[0].launched.acquire, timeout=30)
    closing = asyncio.create_task(llm.close())
    gate[0].open_for_good()
    await closing
    deltas = await reader
    assert deltas[-1].finish_reason in (FinishReason.ABORT, FinishReason.LENGTH)
    assert not llm.is_alive
    await llm.close()


async def test_draining_refuses_newcomers_and_finishes_the_rest():
    """While draining nobody gets in, and those inside end in their own time."""
    gate = []
    async with AsyncLLM(engine=simulated_engine(wrap=lambda inner: gate.append(Gate(inner)) or gate[0])) as llm:
        reader = asyncio.create_task(collect(llm.submit([5, 6, 7], GREEDY)))
        await asyncio.to_thread(gate[0].launched.acquire, timeout=30)
        llm.begin_drain()
        assert not llm.is_ready
        refused = []
        llm.control.admission.on_refusal = refused.append
        with pytest.raises(Overloaded, match="no new requests") as caught:
            llm.submit([5, 6], GREEDY)
        assert caught.value.cause == "draining"
        assert [(one.cause, one.num_prompt, one.max_output) for one in refused] == [("draining", 2, GREEDY.max_tokens)]
        gate[0].open_for_good()
        assert (await reader)[-1].finish_reason is FinishReason.LENGTH
        assert await llm.drained(30.0)


async def test_request_ids_in_use_are_refused():
    """Two live requests cannot share an id; once the first is over the id is free."""
    gate = []
    async with AsyncLLM(engine=simulated_engine(wrap=lambda inner: gate.append(Gate(inner)) or gate[0])) as llm:
        stream = llm.submit([5], GREEDY, request_id="same")
        with pytest.raises(InvalidRequest, match="in use"):
            llm.submit([5], GREEDY, request_id="same")
        gate[0].open_for_good()
        await collect(stream)
        await collect(llm.submit([5], GREEDY, request_id="same"))


async def test_a_failed_step_ends_its_streams_and_the_engine_goes_on():
    """After a fault the batch's choices end with reason `error`; the next request is served."""
    faults = iter([ExecutorFault("the device is gone for a moment")])
    engine = simulated_engine(wrap=lambda inner: Faulty(inner, lambda _: next(faults, None)))
    async with AsyncLLM(engine=engine) as llm:
        assert (await collect(llm.submit([5], GREEDY)))[-1].finish_reason is FinishReason.ERROR
        assert (await collect(llm.submit([5], GREEDY)))[-1].finish_reason is FinishReason.LENGTH


async def test_a_bug_of_ours_does_not_hang_clients():
    """When the loop dies, every stream raises instead of waiting for ever, and new requests are refused."""
    engine = simulated_engine(wrap=lambda inner: Faulty(inner, lambda _: AssertionError("a bug")))
    async with AsyncLLM(engine=engine) as llm:
        with pytest.raises(ExecutorFault, match="a bug"):
            await collect(llm.submit([5], GREEDY))
        await asyncio.to_thread(llm._loop.join, 30)
        assert not llm.is_alive
        with pytest.raises(Overloaded):
            llm.submit([5], GREEDY)


async def test_choices_have_their_own_streams_of_tokens():
    """n choices end one by one, each with one final delta, and usage counts them all."""
    async with AsyncLLM(engine=simulated_engine()) as llm:
        stream = llm.submit([5, 6, 7], SamplingParams(max_tokens=5, n=3, seed=1))
        deltas = await collect(stream)
    assert sorted(delta.choice for delta in deltas if delta.finish_reason) == [0, 1, 2]
    assert all(len(ids_of(deltas, choice)) == 5 for choice in range(3))
    assert stream.usage.num_output == 15
