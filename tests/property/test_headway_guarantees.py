"""What docs/policies.md says that `headway` guarantees, beside the laws in test_headway_parts."""

from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headway.core import Request, Sequence, Tier
from headway.sched.parts.standing import ranking
from headway.sim import Pool, parse_scene, picture, run_scene, simulate
from headway.sim.fitted import Fitted
from headway.sim.plant import Plan, Plant
from headway.workload import WorkItem
from tests.support.fairness import backlogs, bound, drift
from tests.support.scenes import scenes

TERMS = st.fixed_dictionaries(
    {"tier": st.sampled_from(Tier), "priority": st.integers(-9, 9), "deadline_s": st.none() | st.integers(0, 9000)}
)


@given(scene=backlogs(), budget=st.integers(4, 30), overflow=st.sampled_from(["0", "0.05"]))
def test_backlogged_tenants_are_served_alike(scene, budget, overflow):
    """Without a lane for short prompts, services of two tenants with queued work keep to VTC's bound."""
    settings = {"max_num_batched_tokens": str(budget), "overflow": overflow, "short_prompt_tokens": "0"}
    assert drift(scene, run_scene(scene, "headway", settings)) <= bound(scene)


def test_turns_keep_the_bound_where_arrival_alone_does_not():
    """One tenant sends long prompts, the other short ones behind them: the bound holds, and is lost without turns."""
    requests = [
        *({"id": f"u{at}", "prompt": 120, "output": 4, "tenant": "u"} for at in range(12)),
        *({"id": f"v{at}", "prompt": 4, "output": 4, "tenant": "v"} for at in range(120)),
    ]
    scene = parse_scene({"block_size": 4, "num_blocks": 40, "requests": requests})
    settings = {"max_num_batched_tokens": "16", "short_prompt_tokens": "0"}
    assert drift(scene, run_scene(scene, "headway", settings)) <= bound(scene)
    assert drift(scene, run_scene(scene, "headway", {**settings, "fair": "false"})) > bound(scene)


@given(scene=backlogs(), budget=st.integers(4, 30), short=st.integers(1, 12))
def test_the_short_lane_adds_no_more_than_twice_the_longest_prompt(scene, budget, short):
    """With the lane, the services of two backlogged tenants drift by twice the longest prompt more, either way."""
    settings = {"max_num_batched_tokens": str(budget), "short_prompt_tokens": str(short)}
    longest = max(request.prompt for request in scene.requests)
    assert drift(scene, run_scene(scene, "headway", settings)) <= bound(scene) + 4 * max(longest, short)


def test_a_tenant_of_long_prompts_is_not_left_behind_by_short_ones():
    """The lane does not let a tenant of short prompts alone outrun one of long prompts alone."""
    requests = [
        *({"id": f"u{at}", "prompt": 120, "output": 4, "tenant": "u"} for at in range(12)),
        *({"id": f"v{at}", "prompt": 4, "output": 4, "tenant": "v"} for at in range(200)),
    ]
    scene = parse_scene({"block_size": 4, "num_blocks": 40, "requests": requests})
    tape = run_scene(scene, "headway", {"max_num_batched_tokens": "16", "short_prompt_tokens": "8"})
    assert drift(scene, tape) <= bound(scene) + 4 * 120


def test_the_tail_of_a_long_prompt_is_passed_too():
    """Though little of it is left, another tenant's short prompt goes first."""
    requests = [
        {"id": "long", "prompt": 20, "output": 2, "tenant": "u"},
        {"id": "short", "prompt": 4, "output": 2, "tenant": "v", "arrival": 2},
    ]
    scene = parse_scene({"block_size": 4, "num_blocks": 40, "requests": requests})
    tape = run_scene(scene, "headway", {"max_num_batched_tokens": "8", "short_prompt_tokens": "8"})
    assert tape[2].grants == {"short": 4, "long": 4}


@pytest.mark.parametrize(("short", "rest"), [(20, 16), (6, 26)])
def test_a_step_in_which_somebody_passes_is_short(short, rest):
    """Half of the budget, but a tile at least for whoever was passed: a first token comes at a step's end."""
    requests = [
        {"id": "long", "prompt": 300, "output": 2, "tenant": "u"},
        {"id": "short", "prompt": short, "output": 2, "tenant": "v", "arrival": 1},
    ]
    scene = parse_scene({"block_size": 4, "num_blocks": 100, "requests": requests})
    tape = run_scene(scene, "headway", {"max_num_batched_tokens": "64", "short_prompt_tokens": "32"})
    assert tape[1].grants == {"short": short, "long": rest}


def test_a_burst_of_short_prompts_passes():
    """A tenant that was idle passes a long prompt with short ones of twice its charge together, then turns decide."""
    requests = [
        {"id": "long", "prompt": 60, "output": 2, "tenant": "u"},
        *({"id": f"s{at}", "prompt": 4, "output": 1, "tenant": "v", "arrival": 1} for at in range(40)),
    ]
    scene = parse_scene({"block_size": 4, "num_blocks": 90, "requests": requests})
    tape = run_scene(scene, "headway", {"max_num_batched_tokens": "8", "short_prompt_tokens": "8"})
    first = next(at for at, record in enumerate(tape) if at and "long" in record.grants)
    passed = {name for record in tape[1:first] for name in record.grants}
    assert 2 * 60 <= sum(4 + 2 for _ in passed) <= 2 * 60 + 2 * 8 + 2 * 6


@given(
    old=TERMS, new=TERMS, arrival=st.integers(0, 500), age=st.integers(1, 60), more=st.integers(0, 500), at=st.data()
)
def test_ageing_limits_who_may_overtake(old, new, arrival, age, more, at):
    """A request ranks before all that arrive (difference of tiers + 1) × age_s or more after it, at any time."""
    later = arrival + (max(0, old["tier"] - new["tier"]) + 1) * age + more
    rank = ranking(at.draw(st.integers(later, later + 5000)), age)
    assert rank(_sequence("old", arrival, old)) < rank(_sequence("new", later, new))


CUT_IN_TWO = parse_scene(
    {
        "block_size": 1,
        "num_blocks": 40,
        "requests": [{"id": "A", "prompt": 24, "output": 6}, {"id": "B", "prompt": 24, "output": 2}],
    }
)
"""B's first chunk would leave the headroom free, its whole prompt would not."""


@given(
    scene=scenes(),
    limit=st.sampled_from([0.5, 0.75]),
    overflow=st.sampled_from(["0", "0.05"]),
    budget=st.integers(3, 30),
)
@example(scene=CUT_IN_TWO, limit=0.75, overflow="0", budget=10)
def test_admission_leaves_its_share_of_the_blocks_free(scene, limit, overflow, budget):
    """`kv_cache_utilization_limit`: whole prompts of those who join others leave the rest free; everybody is served."""
    settings = {"kv_cache_utilization_limit": str(limit), "overflow": overflow, "max_num_batched_tokens": str(budget)}
    records = run_scene(scene, "headway", settings)
    kept, inside = int((1.0 - limit) * scene.num_blocks), set()
    num_blocks = {request.id: -(-request.prompt // scene.block_size) for request in scene.requests}
    for record in records:
        joins = set(record.grants) - inside
        inside |= joins
        if joins and len(inside) > 1:
            assert record.free_blocks >= kept, picture(scene, records)
            assert sum(num_blocks[name] for name in inside) <= scene.num_blocks - kept, picture(scene, records)
        inside -= {*record.preempted, *record.finished}
    assert {name for record in records for name in record.finished} == {request.id for request in scene.requests}


@pytest.mark.parametrize("method", ["partial or recompute", "swap too"])
@given(scene=scenes(), budget=st.integers(4, 30))
def test_the_first_in_rank_never_gives_way(scene, budget, method):
    """Whoever came first among those under way is never a victim, however cheap it would be."""
    requests = [replace(request, arrival=at, priority=0) for at, request in enumerate(scene.requests)]
    scene = replace(scene, requests=requests, host_blocks=0 if method == "partial or recompute" else None)
    tape = run_scene(scene, "headway", {"overflow": "0", "age_s": "0", "max_num_batched_tokens": str(budget)})
    arrivals = {request.id: request.arrival for request in requests}
    underway = set()
    for record in tape:
        first = min(underway, key=arrivals.__getitem__, default=None)
        assert first not in {*record.preempted, *record.swapped_out}, picture(scene, tape)
        underway = (underway | set(record.grants)) - set(record.finished)


def _sequence(name, arrival, terms):
    return Sequence(Request(id=name, prompt_ids=(1,), max_output=4, arrival_s=arrival, **terms))


def test_a_prompt_gets_a_third_of_the_time_under_a_target_that_nothing_keeps():
    """64 streams alone take over 50 ms a step, the target is 10: a long prompt takes three times as long as alone.

    Half as much again is allowed for what the estimates of a step's time are off.
    """
    cost = Fitted(rows=((1, 0.008), (64, 0.050), (2048, 1.5)), drawn_s=1e-4, context_s=2e-7, attend_s=1e-7)
    plan = Plan(policy="headway", settings={"itl_target_ms": "10"})
    item = WorkItem(id="", num_prompt=20, num_output=160, max_output=160)
    streams = [replace(item, id=f"stream{at}", seed=at) for at in range(64)]
    long = replace(item, id="long", num_prompt=1500, num_output=1, max_output=1, at_s=2.0, seed=99)
    plant = Plant(cost=cost, num_blocks=5000, num_host_blocks=0, context=2048)
    record = simulate(iter([*streams, long]), Pool(plant=plant, plan=plan))
    wait_s = next(one.ttft_s for one in record.requests if one.id == "long")
    alone_s = simulate(iter([long]), Pool(plant=plant, plan=plan)).requests[0].ttft_s
    assert wait_s <= 1.5 * 3.0 * alone_s


def test_who_is_put_off_is_begun_with_what_is_kept_for_it():
    """The first in rank gets something of every step that others fill, and does not wait for their end."""
    cost = Fitted(rows=((1, 0.006), (2048, 1.5)), drawn_s=1e-4, context_s=2e-7, attend_s=1e-7)
    plant = Plant(cost=cost, num_blocks=5000, num_host_blocks=0, context=2048)
    item = WorkItem(id="", num_prompt=20, num_output=400, max_output=400)
    streams = [replace(item, id=f"stream{at}", seed=at) for at in range(8)]
    long = replace(item, id="long", num_prompt=1900, num_output=1, max_output=1, at_s=3.1, seed=99)
    others = [
        replace(item, id=f"r{at}", num_prompt=400, num_output=1, max_output=1, at_s=2.0 + 0.25 * at, seed=100 + at)
        for at in range(60)
    ]
    record = simulate(iter([*streams, long, *others]), Pool(plant=plant, plan=Plan(policy="headway")))
    at_s = {one.id: one for one in record.requests}
    assert at_s["long"].last_s > at_s["r20"].last_s, "it was put off"
    assert at_s["long"].scheduled_s < at_s["r9"].last_s


def test_nobody_waits_for_the_prefix_of_a_prompt_that_is_put_off():
    """It may be computed slowly; who begins alike starts in its own turn."""
    cost = Fitted(rows=((1, 0.006), (2048, 1.5)), drawn_s=1e-4, context_s=2e-7, attend_s=1e-7)
    plant = Plant(cost=cost, num_blocks=5000, num_host_blocks=0, context=2048)
    item = WorkItem(id="", num_prompt=400, num_output=1, max_output=1)
    streams = [replace(item, id=f"stream{at}", num_prompt=20, num_output=400, max_output=400) for at in range(8)]
    long = replace(item, id="long", num_prompt=1900, at_s=3.2, seed=98, prefix=(7,), prefix_block=1024)
    prompts = [
        long,
        replace(item, id="longer", num_prompt=1950, at_s=3.2, seed=99),
        replace(long, id="alike", num_prompt=1100, at_s=3.5, seed=97),
        *(replace(item, id=f"r{at}", at_s=3.0 + 0.02 * at, seed=at) for at in range(40)),
    ]
    work = [*streams, *sorted(prompts, key=lambda one: one.at_s)]
    plan = Plan(policy="headway", settings={"put_off_share": "0.001"})
    at_s = {one.id: one for one in simulate(iter(work), Pool(plant=plant, plan=plan)).requests}
    assert at_s["long"].last_s > at_s["r39"].last_s, "it was put off"
    assert at_s["alike"].scheduled_s <= at_s["r26"].scheduled_s, "that came later"
