"""Whole simulations: times, sessions, patience, refusals, pipelines, fleets."""

import io
import json
from itertools import pairwise

import pytest

from headway.core import Slo
from headway.errors import BadSetting, PolicyFault
from headway.report import Outcome
from headway.sched import POLICIES
from headway.sched.policies.sarathi import Sarathi
from headway.sim import (
    ChromeTrace,
    CostModel,
    Fitted,
    HandOver,
    Interrupted,
    Load,
    Plan,
    Plant,
    Pool,
    StepLog,
    decoding,
    decoding_plan,
    make_router,
    simulate,
)
from headway.sim.prompts import PromptMaker
from headway.workload import WorkItem


class Linear(CostModel):
    """A step takes a millisecond per row and ten more."""

    def predict(self, load: Load) -> float:
        return 0.010 + 0.001 * load.num_tokens


def item(number, at_s=0.0, prompt=8, output=4, **more):
    return WorkItem(id=f"r{number}", at_s=at_s, num_prompt=prompt, num_output=output, max_output=output, **more)


def pool(*, policy="vllm", num_blocks=100, num_replicas=1, router="round-robin", settings=None, **plant):
    return Pool(
        plant=Plant(cost=Linear(), num_blocks=num_blocks, block_size=4, **plant),
        plan=Plan(policy=policy, settings=settings or {}),
        num_replicas=num_replicas,
        router=make_router(router),
    )


class Keeps(Sarathi):
    """Keeps whoever has ended."""

    def let_go(self, ended, running):
        return []


def test_a_policy_that_keeps_the_ended_is_named(monkeypatch):
    """Its limits and the memory are not to blame."""
    monkeypatch.setattr("headway.sim.replica._MAX_IDLE_STEPS", 100)
    with pytest.raises(PolicyFault, match=r"Keeps' gave a wrong answer: let_go\(\) never released r0, which had ended"):
        simulate([item(0)], pool(policy=f"{__name__}:Keeps"))


def test_what_passes_between_steps_is_no_part_of_them():
    """Tokens keep their distance, steps are shorter, and who comes in between is in the next one."""

    def run(*items, between_share):
        measured = Fitted(rows=((1, 0.001), (1000, 1.0)), host_s=0.010, between_share=between_share)
        return simulate(items, Pool(plant=Plant(cost=measured, num_blocks=100, block_size=4), plan=Plan()))

    whole, parted = (run(item(0), item(1, at_s=0.015), between_share=share) for share in (0.0, 0.5))
    assert [step.duration_s for step in whole.steps] == pytest.approx([0.018, 0.019, 0.012, 0.012, 0.011])
    assert [step.duration_s for step in parted.steps] == pytest.approx([0.013, 0.014, 0.007, 0.007, 0.006])
    assert [step.start_s for step in parted.steps] == pytest.approx([step.start_s for step in whole.steps])
    for one, other in zip(whole.requests, parted.requests, strict=True):
        assert list(one.itl_s) == pytest.approx(list(other.itl_s))
    late = run(item(0), item(1, at_s=0.0175), between_share=0.5)
    assert late.requests[1].first_s == parted.requests[1].first_s


def test_any_cost_model_may_tell_what_passes_between_steps():
    """The plant asks the model itself, whatever its class; who says nothing has no such time."""

    class Paused(Linear):
        def between_s(self, load):
            return 0.004

    batch, load = object(), Load(8)
    times = [
        Plant(cost=cost, num_blocks=1, load=lambda _: load).step_times(batch, 0.0) for cost in (Linear(), Paused())
    ]
    assert times == [pytest.approx((0.018, 0.0)), pytest.approx((0.014, 0.004))]


def test_an_interrupted_run_tells_what_had_ended():
    """Ctrl-C in the middle raises as ever, and what it raises has the requests that were served until then."""

    def items():
        yield item(0)
        yield item(1, at_s=1.0)
        yield item(2, at_s=2.0)
        raise KeyboardInterrupt

    with pytest.raises(Interrupted) as caught:
        simulate(items(), pool())
    record = caught.value.record
    assert [request.id for request in record.requests] == ["r0", "r1"]
    assert not record.is_complete
    assert "interrupted" in record.notes[0]


def test_a_pool_beyond_all_memory_is_refused():
    """Blocks of a simulated pool take memory, too."""
    with pytest.raises(BadSetting, match="at most 10,000,000"):
        pool(num_blocks=10**30)


def test_times_are_the_sum_of_the_steps():
    """Prefill of 8 rows, then one row per step; a request that comes meanwhile waits for the step under way."""
    record = simulate([item(0), item(1, at_s=0.001, prompt=4, output=2)], pool())
    first, second = record.requests
    assert first.token_s.tolist() == pytest.approx([0.018, 0.018 + 0.015, 0.033 + 0.012, 0.045 + 0.011])
    assert (second.scheduled_s, second.first_s, second.last_s) == pytest.approx((0.018, 0.033, 0.045))
    assert (first.queue_s, second.queue_s) == pytest.approx((0.0, 0.017))
    assert record.is_virtual
    assert {request.outcome for request in record.requests} == {Outcome.OK}
    assert record.duration_s == pytest.approx(0.056)
    assert [step.num_running for step in record.steps] == [1, 2, 2, 1]


def test_an_engine_that_looks_ahead_sees_arrivals_a_step_later():
    """What comes during a step joins the step after next; the same tokens come out."""
    plain = simulate([item(0, output=6), item(1, at_s=0.001)], pool())
    ahead = simulate([item(0, output=6), item(1, at_s=0.001)], pool(looks_ahead=True))
    assert plain.requests[1].scheduled_s == pytest.approx(0.018)
    assert ahead.requests[1].scheduled_s == pytest.approx(0.018 + 0.011)
    assert [request.num_output for request in ahead.requests] == [6, 4]


def test_an_engine_that_looks_ahead_frees_memory_a_step_later():
    """A sequence that waits for another's blocks gets them one step after its end."""
    items = [item(0, prompt=8, output=4), item(1, prompt=8, output=2)]
    plain = simulate(items, pool(num_blocks=3))
    ahead = simulate(items, pool(num_blocks=3, looks_ahead=True))
    assert ahead.requests[1].scheduled_s >= plain.requests[1].scheduled_s
    assert all(request.is_ok for request in ahead.requests)


def test_a_simulation_repeats_itself():
    """Equal workloads give equal records."""
    items = [item(number, at_s=0.003 * number, prompt=3 + number % 7) for number in range(40)]
    first, second = (simulate(items, pool(num_blocks=12)) for _ in range(2))
    assert first.requests == second.requests
    assert first.server == second.server
    assert first.server["num_preemptions"] > 0


def test_sessions_wait_for_their_answers():
    """A turn without a moment is sent its thinking time after the answer before; nothing is sent after the end."""
    turns = [item(0, session="s", output=2), *(item(n, at_s=None, session="s", turn=n, think_s=0.5) for n in (1, 2))]
    record = simulate(turns, pool())
    for earlier, later in pairwise(record.requests):
        assert later.intended_s == pytest.approx(earlier.last_s + 0.5)
    assert len(simulate(turns, pool(), duration_s=0.6).requests) == 2


def test_a_turn_that_resends_its_history_finds_it_in_the_cache():
    """Prompt and answer of the turn before are hit, block by block, though the answer was made up on the way."""
    before = item(0, prompt=8, output=8, session="s", prefix=(5,), prefix_block=8)
    after = item(1, at_s=None, prompt=20, output=2, session="s", turn=1, prefix=(5, 6), prefix_block=8)
    assert [request.num_cached for request in simulate([before, after], pool()).requests] == [0, 12]


def test_equal_prefixes_are_hit_and_others_are_not():
    """Items with the same prefix block share it once it is computed; without one nothing is shared."""
    shared = [item(n, at_s=float(n), prompt=16, prefix=(9,), prefix_block=8) for n in range(2)]
    assert [request.num_cached for request in simulate(shared, pool()).requests] == [0, 8]
    apart = [item(n, at_s=float(n), prompt=16) for n in range(2)]
    assert [request.num_cached for request in simulate(apart, pool()).requests] == [0, 0]


def test_clients_give_up():
    """After so many tokens, or so many seconds, running or still waiting; the others finish."""
    items = [item(0, output=50, cancel_tokens=3), item(1, output=50, cancel_s=0.05), item(2, output=5)]
    late = item(3, at_s=0.01, cancel_s=0.001)
    records = {request.id: request for request in simulate([*items, late], pool(looks_ahead=True)).requests}
    assert [records[f"r{n}"].outcome for n in range(4)] == [Outcome.CANCELLED] * 2 + [Outcome.OK, Outcome.CANCELLED]
    assert records["r0"].num_output == 3
    assert 0 < records["r1"].num_output < 10
    assert records["r3"].num_output == 0


def test_who_gives_up_has_waited_until_then():
    """In the queue, on the way into it, or behind a refusal: what was waited for in vain is no wait of nothing."""
    alone = {"settings": {"max_num_seqs": "1"}}
    queued = item(1, at_s=0.02, cancel_s=0.3, slo=Slo(ttft_s=0.1))
    arriving = item(2, at_s=0.001, cancel_s=0.005, slo=Slo(ttft_s=0.001))
    records = simulate([item(0, output=50), arriving, queued], pool(**alone)).requests
    assert [record.end_s for record in records] == pytest.approx([records[0].last_s, 0.006, 0.32])
    assert [record.meets_slo() for record in records[1:]] == [False, False]
    assert simulate([item(0, at_s=3.0, prompt=500)], pool()).requests[0].closed_s == 3.0


def test_a_user_goes_on_after_having_given_up():
    """Also while the prompt's KV is on its way: the next turn comes after that moment, not after the last question."""
    prompts = pool()
    decoders = Pool(plant=decoding(prompts.plant), plan=decoding_plan(prompts.plan))
    turns = [item(0, cancel_s=2.0, session="s"), item(1, at_s=None, session="s", turn=1, think_s=0.5)]
    first, second = simulate(turns, prompts, decoders=decoders, hand_over=HandOver(fixed_s=9.0, token_s=0.0)).requests
    assert (first.outcome, first.end_s) == (Outcome.CANCELLED, 2.0)
    assert second.intended_s == 2.5


def test_the_second_leg_has_the_deadline_of_the_first():
    """Moving the KV gives nobody more time; the first token is no promise any more."""
    made = PromptMaker({}).rest(item(0, deadline_s=4.0, slo=Slo(ttft_s=1.0)), arrival_s=3.0, sent_s=1.0)
    assert (made.arrival_s, made.deadline_s, made.ttft_s) == (3.0, 5.0, None)


def test_what_can_never_fit_is_refused_at_the_door():
    """A request longer than memory or context is refused with both numbers; the rest is served."""
    record = simulate([item(0, prompt=500), item(1)], pool())
    refused, served = record.requests
    assert refused.outcome is Outcome.REFUSED
    assert "504 tokens; at most 400 fit" in refused.reason
    assert served.is_ok
    assert not simulate([item(0, prompt=30)], pool(context=32)).requests[0].is_ok


def test_a_pipeline_passes_batches_from_stage_to_stage():
    """Alone, a request takes all stages for every token; two requests keep two stages busy at no extra cost."""
    alone = simulate([item(0, prompt=1, output=3)], pool(num_stages=2)).requests[0]
    assert alone.token_s.tolist() == pytest.approx([0.022, 0.044, 0.066])
    items = [item(number, prompt=1, output=3) for number in range(2)]
    both = simulate(items, pool(num_stages=2, settings={"max_num_batched_tokens": "1"}))
    assert [request.last_s for request in both.requests] == pytest.approx([0.066, 0.077])


@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_every_policy_serves_on_a_pipeline(policy):
    """With a batch per stage, or one at a time where it cannot plan around batches in flight."""
    items = [item(number, at_s=0.01 * number, prompt=30, output=5) for number in range(6)]
    record = simulate(items, pool(num_stages=2, policy=policy))
    assert all(request.is_ok for request in record.requests)


@pytest.mark.parametrize("router", ["round-robin", "least-loaded", "prefix-aware", "tenant-aware"])
def test_routers_spread_the_load(router):
    """Four tenants with their own prefixes on two replicas: everything is served, faster than on one."""
    items = [item(n, at_s=0.01 * n, prompt=24, tenant=f"t{n % 4}", prefix=(n % 4,), prefix_block=16) for n in range(40)]
    one, two = simulate(items, pool()), simulate(items, pool(num_replicas=2, router=router))
    assert all(request.is_ok for request in two.requests)
    assert two.duration_s <= one.duration_s


def test_prefix_awareness_pays_in_hits():
    """Where prefixes have a home, more of them are hit than in turn."""
    items = [item(n, at_s=0.2 * n, prompt=24, prefix=(n * 7 % 3,), prefix_block=16) for n in range(12)]
    hits = {
        name: simulate(items, pool(num_replicas=2, router=name)).server["num_hit_tokens"]
        for name in ("round-robin", "prefix-aware")
    }
    assert hits["prefix-aware"] > hits["round-robin"]


def test_prompts_here_answers_there():
    """The first token comes from one replica, the rest from another after the KV has moved; nothing is lost."""
    prompts = pool()
    decoders = Pool(plant=decoding(prompts.plant), plan=decoding_plan(prompts.plan))
    items = [item(0, output=3), item(1, output=1, at_s=0.5), item(2, output=2, at_s=1.0, cancel_s=0.02)]
    record = simulate(items, prompts, decoders=decoders, hand_over=HandOver(fixed_s=0.1, token_s=0.01))
    long, short, gone = record.requests
    assert long.token_s.tolist() == pytest.approx([0.018, 0.018 + 0.18 + 0.011, 0.209 + 0.011])
    assert short.token_s.tolist() == pytest.approx([0.518])
    assert (gone.outcome, gone.num_output) == (Outcome.CANCELLED, 1)


@pytest.mark.parametrize("policy", ["vllm", "orca", "static", "sarathi", "sarathi_serve", "fastserve", "headway"])
def test_every_policy_serves_everything(policy):
    """Under pressure, with swaps where the policy wants them, every request ends with its whole answer."""
    items = [item(n, at_s=0.01 * n, prompt=4 + n % 9, output=3 + n % 5, slo=Slo(ttft_s=1.0)) for n in range(30)]
    record = simulate(items, pool(policy=policy, num_blocks=20))
    assert [request.num_output for request in record.requests] == [3 + n % 5 for n in range(30)]


def test_settings_that_do_not_exist_are_refused():
    """Unknown policies, settings and routers are the user's mistakes."""
    for build in (lambda: pool(policy="nobody"), lambda: pool(settings={"magic": "1"})):
        with pytest.raises(BadSetting):
            simulate([item(0)], build())
    with pytest.raises(BadSetting, match="known: round-robin"):
        make_router("carrier-pigeon")


def test_traces_and_step_logs_are_whole_documents():
    """The trace is JSON whose spans open and close; the log has a line per step that computed something."""
    trace_file, log_file = io.StringIO(), io.StringIO()
    trace, log = ChromeTrace(trace_file), StepLog(log_file)
    base = pool(num_blocks=6)
    watched = Pool(plant=base.plant, plan=base.plan, observers=(trace.replica, log.replica))
    record = simulate([item(n, prompt=8, output=6) for n in range(3)], watched)
    trace.close()
    entries = json.loads(trace_file.getvalue())["traceEvents"]
    spans = [(entry["ph"], entry["name"]) for entry in entries if entry["ph"] in "be" and entry["id"] == "r0"]
    assert spans == [(phase, name) for name in ("queue", "prefill", "decode") for phase in "be"]
    steps = [json.loads(line) for line in log_file.getvalue().splitlines()]
    assert sum(sum(step["grants"].values()) for step in steps) >= 3 * (8 + 5)
    assert len(steps) == len(record.steps)
