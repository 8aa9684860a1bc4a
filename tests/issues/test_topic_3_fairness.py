"""Starvation and priority: who may pass whom, and for how long."""

import asyncio

import pytest

from headway.core import Request, SamplingParams, Sequence, Tier
from headway.engine import AdmissionLimits, AsyncLLM, Guarding
from headway.errors import Overloaded
from headway.sched.parts.standing import ranking
from headway.sim import parse_scene, run_scene
from tests.support.engines import Gate, simulated_engine
from tests.support.trial import Trial, own_ids

OURS = {"policy": "headway", "max_num_batched_tokens": 64}


@pytest.mark.parametrize("policy", ["headway", "vllm"])
def test_a_large_head_is_not_passed_for_ever(policy):
    """PUBLIC_ISSUES 3.1: small ones keep coming; one that needs most of the memory begins all the same."""
    trial = Trial(policy=policy, num_blocks=30, prefix_cache="none")
    trial.submit("first", 40, 30)
    trial.step(2)
    trial.submit("big", 100, 4)
    for at in range(100):
        trial.submit(f"s{at}", 8, 3)
        trial.step()
        if "big" in trial.first_at:
            break
    assert trial.first_at["big"] <= 2 + 30 + 10
    trial.finish()


def test_a_short_prompt_behind_a_very_long_one():
    """PUBLIC_ISSUES 3.2, 3.3: 8,000 tokens under way: 50 tokens have their answer within three steps, and the long one
    is delayed by less than a tenth; while short ones wait it has half of a step at most.
    """
    settings = {"max_num_batched_tokens": "512", "short_prompt_tokens": "256", "own_short_prompt_tokens": "256"}
    long = {"id": "L", "arrival": 0, "prompt": 8000, "output": 2}
    short = [{"id": f"s{at}", "arrival": 1, "prompt": 50 + 150 * (at > 0), "output": 1} for at in range(4)]

    def run(*requests):
        scene = {"block_size": 16, "num_blocks": 1000, "requests": list(requests)}
        return run_scene(parse_scene(scene), "headway", settings)

    alone, together = run(long), run(long, *short)
    ends = {name: record.step for record in together for name in record.finished}
    assert ends["s0"] <= 1 + 3
    assert ends["L"] < 1.1 * max(record.step for record in alone) + 1
    left = sum(entry["prompt"] for entry in short)
    for record in together[1:]:
        if left >= 256:
            assert record.grants.get("L", 0) <= 256
        left -= sum(num for name, num in record.grants.items() if name != "L")


def test_decoders_keep_their_pace_beside_long_prompts():
    """PUBLIC_ISSUES 3.4: each of four streams has a token in every step of a prompt as long as the context."""
    trial = Trial(**OURS, num_blocks=200, context=512)
    for at in range(4):
        trial.submit(f"d{at}", 8, 40)
    trial.step(3)
    trial.submit("long", 500, 2)
    before = len(trial.steps)
    while "long" not in trial.first_at:
        trial.step()
    for record in trial.steps[before:]:
        assert {f"d{at}" for at in range(4)} <= record.grants.keys()
        assert sum(record.grants.values()) <= 64
    trial.finish()


@pytest.mark.parametrize("num_steps", [250, pytest.param(1000, marks=pytest.mark.slow)])
@pytest.mark.parametrize(("policy", "settings"), [("headway", {}), ("vllm", {"order": "priority"})])
def test_equals_never_displace_each_other(policy, settings, num_steps):
    """PUBLIC_ISSUES 3.5: all places taken and more of the same priority waiting: no preemption in all those steps."""
    trial = Trial(policy=policy, policy_settings=settings, max_num_seqs=10, num_blocks=600, max_model_len=400)
    for at in range(40):
        trial.submit(f"r{at}", 8, num_steps // 5, extras={"priority": 10})
    trial.step(num_steps)
    assert not sum(trial.num_preemptions.values())
    trial.finish()


@pytest.mark.parametrize("policy", ["headway", "vllm"])
def test_a_higher_priority_is_the_next_one_in(policy):
    """PUBLIC_ISSUES 3.5, 3.8: whatever is short, places, budget or blocks: as soon as one is there, it goes to the
    most urgent.
    """
    settings = {"order": "priority"} if policy == "vllm" else {}
    for shortage in ({"max_num_seqs": 2}, {"max_num_batched_tokens": 8}, {"num_blocks": 12, "prefix_cache": "none"}):
        trial = Trial(policy=policy, policy_settings=settings, **shortage)
        for at in range(8):
            trial.submit(f"low{at}", 16, 8, extras={"priority": 10})
        trial.step(2)
        begun = set(trial.cached)
        trial.submit("high", 16, 8, extras={"priority": 0})
        trial.finish()
        passed = [name for name in trial.first_at if trial.first_at[name] < trial.first_at["high"]]
        assert set(passed) <= begun, shortage


@pytest.mark.parametrize(("policy", "settings"), [("headway", {"overflow": "0"}), ("vllm", {}), ("sarathi_serve", {})])
def test_preempted_work_goes_before_fresh_work(policy, settings):
    """PUBLIC_ISSUES 3.6: whoever was sent back is on the device again before anyone who arrived later begins."""
    trial = Trial(policy=policy, policy_settings=settings, num_blocks=24, prefix_cache="none")
    trial.submit("a", 16, 60)
    trial.submit("b", 16, 60)
    while trial.core.has_work and not (trial.num_preemptions["a"] or trial.num_preemptions["b"]):
        trial.step()
    victim = "a" if trial.num_preemptions["a"] else "b"
    for at in range(5):
        trial.submit(f"fresh{at}", 16, 4)
    before = len(trial.cached[victim])
    while len(trial.cached[victim]) == before and victim not in trial.endings:
        trial.step()
        assert len(trial.cached[victim]) > before or not any(trial.cached[f"fresh{at}"] for at in range(5))
    trial.finish()


def test_a_cold_request_is_not_passed_by_cached_ones():
    """PUBLIC_ISSUES 3.9: steady traffic on a hot prefix: one without a hit waits no longer than those around it."""
    trial = Trial(**OURS, max_num_seqs=4, num_blocks=120)
    hot = own_ids("hot", 64)
    trial.submit("warm", hot, 2)
    trial.finish()
    arrived = {}
    for at in range(120):
        name = f"{'cold' if at % 20 == 10 else 'hot'}{at}"
        trial.submit(name, own_ids(name, 68) if name.startswith("cold") else [*hot, *own_ids(name, 4)], 6)
        arrived[name] = len(trial.steps)
        trial.step(2)
    trial.finish()
    waits = {name: trial.first_at[name] - arrived[name] for name in arrived}
    hottest = max(wait for name, wait in waits.items() if name.startswith("hot"))
    assert max(wait for name, wait in waits.items() if name.startswith("cold")) <= hottest + 3


def test_the_order_of_a_queue_is_the_same_at_any_time():
    """PUBLIC_ISSUES 3.10: two requests of one tier that came together never change places by waiting."""
    seqs = [
        Sequence(Request(id=str(at), prompt_ids=(1,), max_output=1, tier=Tier.DEFAULT, priority=at % 3, arrival_s=5.0))
        for at in range(9)
    ]
    orders = {
        tuple(seq.id for seq in sorted(seqs, key=ranking(now_s, 10.0))) for now_s in (5.0, 14.9, 15.0, 100.0, 5000.0)
    }
    assert len(orders) == 1


@pytest.mark.parametrize("policy", ["headway", "vllm"])
def test_asking_for_more_than_is_used_hurts_nobody(policy):
    """PUBLIC_ISSUES 3.11: one that may say as much as the context and stops after 20: ten others lose a tenth at most.

    Provided that requests ended before: with nothing learned, `headway` believes what is asked for.
    """

    def steps(most):
        before = [{"id": f"b{at}", "prompt": 4, "output": 10 + at, "max_output": 600} for at in range(20)]
        big = {"id": "big", "arrival": 900, "prompt": 16, "output": 20, "max_output": most}
        others = [{"id": f"r{at}", "arrival": 901, "prompt": 16, "output": 40} for at in range(10)]
        scene = parse_scene({"block_size": 4, "num_blocks": 160, "requests": [*before, big, *others]})
        records = run_scene(scene, policy)
        return max(record.step for record in records if record.finished) - 900

    assert steps(600) <= 1.1 * steps(20)


async def test_a_burst_is_counted_as_it_comes():
    """PUBLIC_ISSUES 3.12: of 500 submitted at once, no more are let in than may wait, whatever the engine saw."""
    gates = []
    engine = simulated_engine(wrap=lambda inner: gates.append(Gate(inner)) or gates[0], max_num_seqs=4, num_blocks=128)
    guarding = Guarding(limits=AdmissionLimits(max_queued_requests=32))
    async with AsyncLLM(engine=engine, guarding=guarding) as llm:
        streams, num_refused = [], 0
        for at in range(500):
            try:
                streams.append(llm.submit([5 + at % 90] * 4, SamplingParams(max_tokens=4, ignore_eos=True)))
            except Overloaded:
                num_refused += 1
        assert len(streams) <= 32 + 4
        assert len(streams) + num_refused == 500
        gates[0].open_for_good()
        await asyncio.gather(*map(whole, streams))


async def whole(stream):
    return [delta async for delta in stream]
