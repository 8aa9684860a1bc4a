"""The engine in this process as a target: the real loop over a tiny model."""

import asyncio

import pytest

from headway.bench import Call, Closing, EngineTarget, IdCalls, Runner, RunPlan
from headway.bench.contest import Base, Contest, rounds
from headway.bench.logbook import Logbook
from headway.bench.mixed import MixedLoad
from headway.bench.pace import on_even_time
from headway.bench.policies import Arena
from headway.engine import EngineConfig, build_engine, with_policy
from headway.errors import BadSetting
from headway.report import Outcome
from headway.workload import PromptMaker, parse_workload
from tests.support.scripted import item
from tests.support.tiny_model import write_tiny_gguf


@pytest.fixture(scope="module")
def engine(tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "tiny.gguf"
    write_tiny_gguf(path)
    built = build_engine(EngineConfig(model=str(path), executor="reference", num_blocks=64, block_size=4, seed=0))
    yield built
    built.core.executor.close()


class TinyCalls:
    """Prompts of letters: the tiny tokenizer knows no common words."""

    def call(self, item):
        ids = [(item.seed * 31 + at * 7) % 200 + 3 for at in range(item.num_prompt)]
        return Call(id=item.id, prompt=ids, num_prompt=item.num_prompt, num_output=item.num_output, seed=item.seed)


def test_answers_are_as_long_as_asked_with_the_engines_own_times(engine):
    """Whatever the model says, lengths are exact; queue time, cache hits and steps come with them."""
    items = [item(k, num_prompt=20, num_output=5 + k, max_output=5 + k, seed=k % 2) for k in range(4)]

    async def go():
        async with EngineTarget(with_policy(engine, engine.config)) as target:
            return await Runner(target, TinyCalls(), engine.clock, RunPlan(items=lambda: items)).run()

    run = asyncio.run(go())
    assert [request.outcome for request in run.requests] == [Outcome.OK] * 4
    assert [request.num_output for request in run.requests] == [5, 6, 7, 8]
    for request in run.requests:
        assert len(request.token_s) == request.num_output
        assert list(request.token_s) == sorted(request.token_s)
        assert request.intended_s <= request.scheduled_s <= request.first_s <= request.last_s <= request.closed_s
    assert run.server["generation_tokens"] == 26
    assert sum(step.num_prefill + step.num_decode for step in run.steps) == run.server["computed_tokens"]
    assert run.target["policy"] == "headway"


def test_nobody_is_refused_because_a_step_takes_long(engine):
    """A step of a millisecond takes hours on this clock: the server's patience with hung steps is none of a run's."""
    paced, maker = on_even_time(engine)
    maker.clock.go_on_at(1e7)
    items = [item(k, num_prompt=20, num_output=30, max_output=30, seed=k, at_s=1e5 * k) for k in range(6)]

    async def go():
        async with EngineTarget(with_policy(paced, paced.config)) as target:
            return await Runner(target, TinyCalls(), paced.clock, RunPlan(items=lambda: items)).run()

    assert [(request.outcome, request.num_output) for request in asyncio.run(go()).requests] == [(Outcome.OK, 30)] * 6


def test_a_client_that_goes_frees_its_request(engine):
    """Giving up aborts in the engine: its blocks are free again."""
    under = with_policy(engine, engine.config)

    async def go():
        async with EngineTarget(under) as target:
            plan = RunPlan(items=lambda: [item(0, num_prompt=8, num_output=100, cancel_tokens=3)])
            return await Runner(target, TinyCalls(), engine.clock, plan).run()

    run = asyncio.run(go())
    assert run.requests[0].outcome is Outcome.CANCELLED
    assert 3 <= run.requests[0].num_output < 100
    assert under.core.scheduler.kv.num_free == under.core.scheduler.kv.num_blocks
    under.core.check()


def test_a_prompt_that_does_not_fit_fails_in_words(engine):
    """The engine's refusal is that request's failure, not the run's."""

    async def go():
        async with EngineTarget(with_policy(engine, engine.config)) as target:
            items = [item(0, num_prompt=400), item(1)]
            return await Runner(target, TinyCalls(), engine.clock, RunPlan(items=lambda: items)).run()

    run = asyncio.run(go())
    assert [request.outcome for request in run.requests] == [Outcome.FAILED, Outcome.OK]
    assert "context" in run.requests[0].reason


def test_policies_change_over_one_executor(engine):
    """Each engine starts from an empty cache, and the executor stays open."""

    async def tokens_under(policy):
        config = EngineConfig(policy=policy, num_blocks=64, block_size=4)
        async with EngineTarget(with_policy(engine, config)) as target:
            call = Call(id="a", prompt=list(range(3, 23)), num_prompt=20, num_output=4)
            pieces = [piece async for piece in target.stream(call)]
        assert isinstance(pieces[-1], Closing)
        return pieces[-1].num_output, pieces[-1].num_cached

    assert [asyncio.run(tokens_under(policy)) for policy in ("vllm", "orca", "vllm")] == [(4, 0)] * 3


def test_a_contest_runs_every_policy_in_turn(engine):
    """Two policies, two rates, two rounds: four scores each over the same requests, and a measured base rate."""
    load = MixedLoad(
        num_requests=6, prompt_median=10, prompt_p90=20, output_median=4, output_p90=8, context=200, seed=3
    )
    contest = Contest(policies=("vllm", "static", "no_such"), load=load, factors=(40.0, 20.0), repeats=2)
    heats = []
    arena = Arena(
        engine,
        contest,
        make_calls=lambda salt: TinyCalls(),
        on_record=lambda heat, run, score: heats.append((heat.policy, heat.factor, score)),
    )
    standings = asyncio.run(arena.run())
    assert standings.is_complete
    assert standings.base_rate > 0
    assert "no_such" in standings.skipped["no_such"]
    assert {key: len(scores) for key, scores in standings.scores.items()} == {
        (factor, policy): 2 for factor in (40.0, 20.0) for policy in ("vllm", "static")
    }
    assert all(score.num_failed == 0 for _, _, score in heats)
    assert all(score.num_wasted > 0 for policy, _, score in heats if policy == "static")
    assert all(score.num_wasted == 0 for policy, _, score in heats if policy == "vllm")


def test_an_interrupted_contest_keeps_its_finished_heats(engine):
    """Ctrl-C in the middle: what was scored stays."""
    load = MixedLoad(num_requests=4, prompt_median=10, prompt_p90=20, output_median=4, output_p90=8, context=200)
    contest = Contest(policies=("vllm", "orca"), load=load, factors=(1.0,), repeats=50, base_rate=100.0)

    async def go():
        arena = Arena(
            engine,
            contest,
            make_calls=lambda salt: TinyCalls(),
            on_record=lambda heat, *_: task.cancel() if heat.number == 3 else None,
        )
        task = asyncio.create_task(arena.run())
        return await task

    standings = asyncio.run(go())
    assert not standings.is_complete
    assert sum(len(scores) for scores in standings.scores.values()) == 3


def test_a_contest_goes_on_where_its_log_ends(engine, tmp_path):
    """Finished runs are not made again, and another contest's log is refused."""
    load = MixedLoad(num_requests=4, prompt_median=10, prompt_p90=20, output_median=4, output_p90=8, context=200)
    made = []

    def go(policies, about):
        arena = Arena(
            engine,
            Contest(policies=policies, load=load, factors=(1.0,), repeats=1),
            make_calls=lambda salt: TinyCalls(),
            on_record=lambda heat, *_: made.append(heat.policy),
            log=Logbook(tmp_path / "runs.jsonl", about),
        )
        return asyncio.run(arena.run())

    first = go(("vllm",), {"context": 200})
    both = go(("vllm", "orca"), {"context": 200})
    assert made == ["vllm", "orca"]
    assert both.base_rate == first.base_rate
    assert both.scores[1.0, "vllm"] == first.scores[1.0, "vllm"]
    with pytest.raises(BadSetting, match="another model, workload or setting"):
        go(("vllm",), {"context": 100})


def test_a_base_rate_is_not_measured_on_requests_that_came_to_nothing(engine, tmp_path):
    """A timeout too short for all requests at once would set every arrival rate too high, without a word."""
    load = MixedLoad(num_requests=4, prompt_median=10, prompt_p90=20, output_median=4, output_p90=8, context=200)
    log = Logbook(tmp_path / "runs.jsonl", {})
    contest = Contest(policies=("vllm",), load=load, factors=(1.0,), repeats=1, timeout_s=1e-6)
    arena = Arena(engine, contest, make_calls=lambda salt: TinyCalls(), log=log)
    with pytest.raises(BadSetting, match=r"4 of 4 requests came to nothing.*\(no end within 1e-06 s\)"):
        asyncio.run(arena.run())
    assert log.base is None


def test_arrivals_and_figures_follow_the_speed_of_the_machine(engine, tmp_path):
    """A machine that became far faster has as much more to do in a second; with a rate of its own, nobody looks."""
    load = MixedLoad(num_requests=4, prompt_median=10, prompt_p90=20, output_median=4, output_p90=8, context=200)
    paced, pacemaker = on_even_time(engine)
    assert paced.limits.num_blocks == engine.limits.num_blocks - 4

    def go(under, maker):
        log = Logbook(tmp_path / f"{maker is None}.jsonl", {})
        log.set_base(Base(rate=0.05, glance_s=10.0))  # a request in 20 s, where a look took 10 s
        scores = []
        arena = Arena(
            under,
            Contest(policies=("vllm",), load=load, factors=(0.5,), repeats=1, base_rate=None if maker else 1e3),
            pacemaker=maker,
            make_calls=lambda salt: TinyCalls(),
            on_record=lambda heat, run, score: scores.append((run, score)),
            log=log if maker else None,
        )
        standings = asyncio.run(arena.run())
        assert standings.follows_speed == (maker is not None)
        return scores[0]

    run, score = go(paced, pacemaker)
    assert run.workload["arrivals"]["rate"] == 0.025
    assert score.duration_s > 10.0  # of that slow machine
    assert score.speed > 100
    assert all(request.is_ok and request.sent_s >= request.intended_s for request in run.requests)
    assert go(engine, None)[1].speed == 1.0


def test_each_round_begins_with_another_policy():
    """A machine that slows down in the course of a round hits all of them alike."""
    heats = rounds(["a", "b", "c"], [1.0], 3)
    assert ["".join(heat.policy for heat in heats[k : k + 3]) for k in (0, 3, 6)] == ["abc", "bca", "cab"]


@pytest.mark.parametrize("num", [4000, pytest.param(20_000, marks=pytest.mark.slow)])
def test_the_mixed_workload_has_its_median_and_p90(num):
    """Many draws: median 180 and P90 900 of prompts, 60 and 200 of outputs."""
    load = MixedLoad(num_requests=num, context=1 << 20)
    items = list(load.workload(1.0, 0).items())
    prompts, outputs = (sorted(getattr(one, name) for one in items) for name in ("num_prompt", "num_output"))
    assert prompts[num // 2] == pytest.approx(180, rel=0.05)
    assert prompts[num * 9 // 10] == pytest.approx(900, rel=0.05)
    assert outputs[num // 2] == pytest.approx(60, rel=0.05)
    assert outputs[num * 9 // 10] == pytest.approx(200, rel=0.05)


def test_the_mixed_workload_fits_the_context_and_is_fixed():
    """No request can be refused for its length; the same seed gives the same requests, another repeat others."""
    load = MixedLoad(context=512)
    items = list(load.workload(2.0, 0).items())
    assert max(one.num_prompt + one.num_output for one in items) <= 512
    assert items == list(load.workload(2.0, 0).items())
    assert items != list(load.workload(2.0, 1).items())
    with pytest.raises(BadSetting, match="P90 must be above"):
        MixedLoad(prompt_p90=100).workload(1.0, 0)


def test_made_up_prompts_need_words(engine):
    """A tokenizer without common words is refused with a way out."""
    with pytest.raises(BadSetting, match=r"prompts\.file"):
        IdCalls(PromptMaker(engine.tokenizer))
    assert parse_workload({"num_requests": 1, "arrivals": "at_once", "lengths": {"prompt": 1, "output": 1}})
