"""Deadlock and livelock: as long as requests are here, somebody moves, or somebody is told."""

import asyncio
import logging

import pytest

from headway.core import FinishReason, Place, Preemption, PreemptMethod, Requeue, SamplingParams, StepPlan
from headway.engine import AdmissionLimits, AsyncLLM, Guarding
from headway.errors import InvalidRequest, Overloaded, PolicyFault, PromptTooLong
from headway.sched import POLICIES, make_policy
from headway.sched.policies.headway import Headway
from tests.support.effort import sample
from tests.support.engines import simulated_engine
from tests.support.trial import Trial

WHOLE = {"static", "tgi", "trtllm", "vllm_v0"}
"""Policies that compute a prompt in one step, some with padding: their budgets must hold the longest prompt."""

SPARING = ["sarathi_serve", "vllm", "vllm_v0", "vtc"]
"""Policies that keep a watermark of blocks free."""


def settings_for(policy, **settings):
    """Settings under which a policy promises the whole pool to one sequence."""
    return {"policy": policy, "max_num_batched_tokens": 512 if policy in WHOLE else 16, **settings}


PROMISES = [*((name, 0.0) for name in sorted(POLICIES)), *((name, 0.2) for name in SPARING)]


@pytest.mark.parametrize(
    ("policy", "watermark", "num_blocks"),
    sample([(*promise, num_blocks) for promise in PROMISES for num_blocks in (1, 2, 7)], every=2),
)
def test_what_is_promised_can_be_served(policy, watermark, num_blocks):
    """PUBLIC_ISSUES 2.1, 2.2, 12.3, 12.7: a sequence as long as the limit is served, one longer is refused at once."""
    settings = settings_for(policy, num_blocks=num_blocks, watermark=watermark)
    limit = Trial(**settings).engine.limits.max_model_len
    for num_prompt in {1, limit // 2, limit - 1}:
        trial = Trial(**settings)
        trial.submit("whole", num_prompt, limit - num_prompt)
        with pytest.raises(PromptTooLong, match=rf"{limit}.* {limit + 1} "):
            trial.submit("beyond", num_prompt, limit - num_prompt + 1)
        trial.submit("short", 1, 1)
        trial.submit("also whole", num_prompt, limit - num_prompt)
        trial.finish(most=400)
        assert not trial.refusals
        assert set(trial.reasons.values()) == {FinishReason.LENGTH}


class Parking(Headway):
    """Sends one sequence back to the end of the queue, once, with most of its memory."""

    parked = False

    def plan(self, view):
        seq = next((seq for seq in view.running if seq.request.id == "parked" and seq.num_output == 4), None)
        if seq is None or self.parked:
            return super().plan(view)
        self.parked = True
        view.ledger.give_back(seq, 48)
        return StepPlan(preemptions=[Preemption(seq, PreemptMethod.PARTIAL, Requeue.BACK, keep_tokens=48)])


@pytest.mark.parametrize("overflow", ["0", "0.05"])
def test_a_parked_owner_of_memory_does_not_block_the_head(overflow):
    """PUBLIC_ISSUES 2.3: parked with 60 % of the blocks behind a head that needs 70 %: both end."""
    trial = Trial(num_blocks=20, policy="headway", policy_settings={"overflow": overflow}, prefix_cache="none")
    scheduler = trial.core.scheduler
    scheduler.policy = Parking(make_policy("headway", {"overflow": overflow})._params)
    trial.submit("parked", 48, 20)
    trial.step(6)
    trial.submit("head", 56, 4)
    for _ in range(40):
        trial.step()
    assert scheduler.policy.parked
    assert set(trial.endings) == {"parked", "head"}
    trial.finish()


class Refuser(Headway):
    """Runs nobody until it is told to."""

    works = False

    def plan(self, view):
        return super().plan(view) if self.works else StepPlan()


async def test_a_standstill_is_seen_from_outside(caplog):
    """PUBLIC_ISSUES 2.4: a policy that runs nobody: not ready, not alive, and the log names the requests, once."""
    engine = simulated_engine(policy="headway")
    llm = AsyncLLM(engine=engine, guarding=Guarding(limits=AdmissionLimits(step_timeout_s=30.0)))
    policy = engine.core.scheduler.policy = Refuser(engine.core.scheduler.policy._params)
    async with llm:
        with caplog.at_level(logging.ERROR, logger="headway"):
            stream = llm.submit([5, 6, 7], SamplingParams(max_tokens=2), request_id="blocked")
            await until(lambda: llm._loop._idle_since_s is not None)
            assert llm.is_ready
            engine.clock.advance(31.0)
            assert not llm.is_alive
            assert not llm.is_ready
            with pytest.raises(Overloaded):
                llm.submit([5], SamplingParams(max_tokens=2))
            await until(lambda: caplog.records)
        policy.works = True
        deltas = [delta async for delta in stream]
        assert deltas[-1].finish_reason is FinishReason.LENGTH
        await until(lambda: llm.is_ready)
    (record,) = caplog.records
    assert "blocked" in record.getMessage()


async def until(is_so):
    """Let the engine's thread work until something is so; at most 30 s."""
    for _ in range(30_000):
        if is_so():
            return
        await asyncio.sleep(0.001)
    pytest.fail("it never came to be")


@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_a_pool_for_one_serves_twenty(policy):
    """PUBLIC_ISSUES 2.7, 2.12: with blocks for 1.2 requests all twenty end, in no more steps than one by one takes
    twice over, and say what they would have said alone.
    """
    trial = Trial(**settings_for(policy, num_blocks=15, block_size=4, prefix_cache="none"))
    for at in range(20):
        trial.submit(f"r{at}", 32, 16)
    trial.finish(most=2 * 20 * (2 + 16))
    assert not trial.refusals
    assert set(trial.reasons.values()) == {FinishReason.LENGTH}


def test_a_preempted_request_finds_its_blocks_again():
    """PUBLIC_ISSUES 2.8: while another one uses a few blocks, most of what was freed stays findable."""
    trial = Trial(num_blocks=24, policy="vllm", max_num_batched_tokens=64)
    trial.submit("long", 40, 40)
    trial.submit("victim", 40, 30)
    while not trial.num_preemptions["victim"]:
        trial.step()
    trial.submit("small", 4, 2)
    trial.finish()
    assert all(num_cached > 0 for num_cached in trial.cached["victim"][1:])


def test_shortage_does_not_fill_the_log(caplog):
    """PUBLIC_ISSUES 2.9: hundreds of preemptions and failed admissions are counted, not logged."""
    with caplog.at_level(logging.DEBUG, logger="headway"):
        trial = Trial(num_blocks=15, policy="vllm", prefix_cache="none")
        for at in range(20):
            trial.submit(f"r{at}", 8, 40)
        trial.finish()
    assert sum(trial.num_preemptions.values()) >= 20
    assert not caplog.records


@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_many_choices_are_no_hostages(policy):
    """PUBLIC_ISSUES 2.10: choices of three pools together end, or are refused with a reason; a small one behind too."""
    trial = Trial(**settings_for(policy, num_blocks=20, max_model_len=None if policy in WHOLE else 60))
    trial.submit("crowd", 8, 32, n=6)
    trial.step(3)
    trial.submit("small", 4, 4)
    trial.finish(most=600)
    assert trial.endings["small"].reason is FinishReason.LENGTH
    assert "crowd" in trial.endings or "block" in trial.refusals["crowd"]


@pytest.mark.parametrize(
    ("policy", "settings"),
    [
        ("vllm_v0", {"preemption": "swap", "mode": "chunked"}),
        ("headway", {"overflow": "0"}),
        ("fastserve", {}),
    ],
)
@pytest.mark.parametrize("num_host_blocks", [0, 3])
def test_without_room_to_swap_it_is_computed_again(policy, settings, num_host_blocks):
    """PUBLIC_ISSUES 2.11: a host tier that is absent or too small costs time, never a request."""
    trial = Trial(policy=policy, policy_settings=settings, num_blocks=20, host_memory=4 * num_host_blocks)
    for at in range(6):
        trial.submit(f"r{at}", 12, 40, n=1 + at % 2)
    trial.finish()
    assert sum(trial.num_preemptions.values())
    assert set(trial.reasons.values()) == {FinishReason.LENGTH}


class Bungler(Headway):
    """Plans one thing that cannot be."""

    mistake = ""

    def plan(self, view):
        running = [seq for seq in view.running if seq.num_output > 1]
        if not self.mistake or not running:
            return super().plan(view)
        plan, seq = StepPlan(), running[0]
        view.ledger.give_back(seq)
        plan.preemptions = [Preemption(seq), Preemption(seq)] if self.mistake == "twice" else []
        plan.swap_ins = [seq] if self.mistake == "swap in" else []
        return plan


@pytest.mark.parametrize("mistake", ["twice", "swap in"])
def test_an_impossible_move_changes_nothing(mistake):
    """PUBLIC_ISSUES 2.13: preempting twice, or resuming what runs, is refused before anything happened."""
    trial = Trial(policy="headway")
    policy = trial.core.scheduler.policy = Bungler(trial.core.scheduler.policy._params)
    trial.submit("x", 8, 8)
    trial.step(4)
    policy.mistake = mistake
    before = list(trial.core.scheduler.kv.block_table("x"))
    with pytest.raises(PolicyFault):
        trial.core.step()
    trial.core.check()
    assert trial.core.scheduler.kv.block_table("x") == before
    assert trial.core.scheduler.queues.running[0].place is Place.RUNNING
    policy.mistake = ""
    trial.finish()


@pytest.mark.parametrize(
    ("policy", "block_size", "num_blocks"),
    sample([(name, *size) for size in ((1, 24), (16, 3), (24, 2), (24, 1)) for name in sorted(POLICIES)], every=3),
)
def test_fewer_blocks_than_sequences(policy, block_size, num_blocks):
    """PUBLIC_ISSUES 2.15: blocks of any size, fewer of them than sequences may run: everybody ends."""
    settings = settings_for(policy, block_size=block_size, num_blocks=num_blocks, max_num_seqs=32)
    trial = Trial(**settings)
    for at in range(12):
        trial.submit(f"r{at}", 4 + at, 6)
    trial.finish(most=600)
    assert set(trial.reasons.values()) == {FinishReason.LENGTH}


async def test_after_everybody_left_at_once_everybody_is_served():
    """PUBLIC_ISSUES 2.16: a hundred streams end at one moment, and a hundred new ones are answered."""
    engine = simulated_engine(num_blocks=40)
    async with AsyncLLM(engine=engine) as llm:
        params = SamplingParams(temperature=0.0, max_tokens=30, ignore_eos=True)
        first = [llm.submit([5 + at] * 9, params) for at in range(100)]
        await anext(aiter(first[0]))
        for stream in first:
            stream.abort()
        second = [llm.submit([5 + at] * 9, params) for at in range(100)]
        answers = await asyncio.gather(*map(whole, second))
        assert {deltas[-1].finish_reason for deltas in answers} == {FinishReason.LENGTH}
        await asyncio.gather(*map(whole, first))
        await until(lambda: llm.stats().num_free_blocks == 40)
    engine.core.check()


async def whole(stream):
    return [delta async for delta in stream]


def test_more_choices_than_places_are_refused_at_the_door():
    """PUBLIC_ISSUES 2.10: with 8 sequences at most, 9 choices can never run."""
    trial = Trial(max_num_seqs=8)
    with pytest.raises(InvalidRequest, match=r"9.*8"):
        trial.submit("x", 4, 4, n=9)
    trial.submit("y", 4, 4, n=8)
    trial.finish()
