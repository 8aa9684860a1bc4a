"""Deadlines in every state: before it was queued, while it waits, in its prefill, while it decodes."""

import asyncio

import pytest

from headway.core import FinishReason, SamplingParams
from headway.engine import AdmissionLimits, AsyncLLM, Guarding
from headway.errors import Overloaded
from tests.support.engines import Gate, simulated_engine

LONG = SamplingParams(temperature=0.0, max_tokens=300, ignore_eos=True)


class Bench:
    """A live engine whose steps the test lets through; each takes 10 ms of virtual time."""

    def __init__(self, **settings):
        limits = {name: settings.pop(name) for name in ("queue_timeout_ms", "step_timeout_s") if name in settings}
        self.gate = None
        self.engine = simulated_engine(wrap=self._wrap, **{"num_blocks": 128, **settings})
        limits = AdmissionLimits(max_queued_requests=0, **limits)
        self.llm = AsyncLLM(engine=self.engine, guarding=Guarding(limits=limits))

    def _wrap(self, executor):
        self.gate = Gate(executor)
        return self.gate

    async def launched(self):
        assert await asyncio.to_thread(self.gate.launched.acquire, timeout=30)

    async def __aenter__(self):
        self.llm.start()
        return self

    async def __aexit__(self, *_):
        self.gate.open_for_good()
        await self.llm.close()
        self.engine.core.check()
        assert self.engine.core.scheduler.kv.num_free == self.engine.limits.num_blocks


async def read(stream):
    return [delta async for delta in stream]


async def test_at_its_deadline_a_decoding_request_ends_with_what_it_has():
    """Ten steps of 10 ms: about ten tokens and the reason `deadline`."""
    async with Bench() as bench:
        stream = bench.llm.submit([5, 6, 7], LONG, timeout_s=0.1)
        bench.gate.open_for_good()
        deltas = await read(stream)
    assert deltas[-1].finish_reason is FinishReason.DEADLINE
    assert 8 <= stream.usage.num_output <= 11


async def test_an_empty_engine_tries_whatever_short_prompts_said_of_its_speed():
    """Five tokens in a step of 10 ms are 500 a second; 120 take one step as well, not a quarter of a second."""
    few = SamplingParams(temperature=0.0, max_tokens=2, ignore_eos=True)
    async with Bench() as bench:
        bench.gate.open_for_good()
        await read(bench.llm.submit([5] * 5, few))
        deltas = await read(bench.llm.submit([7] * 120, few, ttft_s=0.1))
    assert deltas[-1].finish_reason is FinishReason.LENGTH


async def test_a_prefill_is_cut_short():
    """A prompt of 200 tokens in chunks of 8 needs 25 steps; after 10 its time for the first token is over."""
    async with Bench(max_num_batched_tokens=8) as bench:
        stream = bench.llm.submit([5] * 200, LONG, ttft_s=0.1)
        bench.gate.open_for_good()
        deltas = await read(stream)
    assert [delta.finish_reason for delta in deltas] == [FinishReason.DEADLINE]
    assert stream.usage.num_output == 0


async def test_a_first_token_in_time_keeps_the_request():
    """`ttft_s` binds the first token alone."""
    async with Bench() as bench:
        stream = bench.llm.submit([5, 6, 7], LONG, ttft_s=0.1)
        bench.gate.open_for_good()
        deltas = await read(stream)
    assert deltas[-1].finish_reason is FinishReason.LENGTH


async def test_a_waiting_request_is_dropped_before_its_prefill():
    """One place, taken for 300 steps: the second request is refused at its deadline, and nothing of it is computed."""
    async with Bench(max_num_seqs=1) as bench:
        first = asyncio.create_task(read(bench.llm.submit([5, 6, 7], LONG)))
        await bench.launched()
        second = bench.llm.submit([8, 9, 10], LONG, request_id="late", timeout_s=0.2)
        bench.gate.open_for_good()
        with pytest.raises(Overloaded) as caught:
            await read(second)
        assert caught.value.cause == "deadline"
        assert (await first)[-1].finish_reason is FinishReason.LENGTH
        assert bench.llm.stats().refused == {"deadline": 1}
        (story,) = bench.llm.control.decisions.find("late")
    assert (story["state"], story["refusal"], story["last_steps"]) == ("refused", "deadline", [])
    assert story["waited_s"]["sequences"] > 0.1


async def test_nobody_waits_longer_than_the_queue_timeout():
    """Without any deadline of its own, a request is refused after 200 ms in the queue."""
    async with Bench(max_num_seqs=1, queue_timeout_ms=200) as bench:
        first = asyncio.create_task(read(bench.llm.submit([5, 6, 7], LONG)))
        await bench.launched()
        second = bench.llm.submit([8, 9, 10], LONG)
        bench.gate.open_for_good()
        with pytest.raises(Overloaded) as caught:
            await read(second)
        assert caught.value.cause == "timeout"
        assert (await first)[-1].finish_reason is FinishReason.LENGTH


async def test_a_preempted_request_ends_at_its_deadline_with_what_it_said():
    """Two sequences outgrow the memory; whichever waits then keeps what it has emitted."""
    async with Bench(num_blocks=24, max_model_len=90) as bench:
        params = SamplingParams(temperature=0.0, max_tokens=70, ignore_eos=True)
        streams = [bench.llm.submit([5 + at] * 9, params, timeout_s=0.6) for at in range(3)]
        bench.gate.open_for_good()
        answers = await asyncio.gather(*map(read, streams))
        assert bench.llm.stats().num_preemptions
    reasons = {deltas[-1].finish_reason for deltas in answers}
    assert reasons <= {FinishReason.DEADLINE, FinishReason.LENGTH}
    assert FinishReason.DEADLINE in reasons
    assert all(stream.usage.num_output for stream in streams)


async def test_a_step_that_hangs_is_seen():
    """The engine counts as dead once a step lasts longer than its bound, and lives again when it ends."""
    async with Bench(step_timeout_s=5.0) as bench:
        stream = bench.llm.submit([5, 6, 7], SamplingParams(temperature=0.0, max_tokens=2))
        await bench.launched()
        assert bench.llm.is_alive
        bench.engine.clock.advance(5.1)
        assert not bench.llm.is_alive
        assert not bench.llm.is_ready
        with pytest.raises(Overloaded):
            bench.llm.submit([5], LONG)
        bench.gate.open_for_good()
        await read(stream)
        assert bench.llm.is_alive
