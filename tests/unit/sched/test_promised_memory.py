"""Policies that promise memory to the end: what they refuse, what they really pay, and how batches end."""

import pytest

from headway.clock import VirtualClock
from headway.core import Request, SamplingParams
from headway.core.stopping import token_stop
from headway.engine.core import EngineCore
from headway.errors import BadSetting
from headway.executor.simulated import SimulatedExecutor
from headway.kv import KVCache, make_prefix_cache
from headway.sched import Scheduler, make_policy
from headway.sim import parse_scene, run_scene


def build(policy, num_blocks=20, **settings):
    """A core in virtual time, the batches that it launches, and the events it sends."""
    batches, events = [], []
    clock = VirtualClock()

    def one_unit(batch):
        batches.append(batch)
        return 1.0

    kv = KVCache(num_blocks, 4, make_prefix_cache("none", 4))
    planner = make_policy(policy, {key: str(value) for key, value in settings.items()})
    executor = SimulatedExecutor(num_blocks, 4, clock, one_unit, {}, in_flight=planner.in_flight())
    core = EngineCore(Scheduler(planner, kv, token_stop), executor, clock, events.extend)
    return core, batches, events


def ask(name, prompt, output, **params):
    return Request(
        id=name,
        prompt_ids=tuple(range(prompt)),
        max_output=output,
        params=SamplingParams(temperature=0.0, max_tokens=output, **params),
    )


def one_request(prompt, output, n=1, num_blocks=8):
    entry = {"id": "A", "arrival": 0, "prompt": prompt, "output": output, "n": n}
    return parse_scene({"block_size": 4, "num_blocks": num_blocks, "requests": [entry]})


@pytest.mark.parametrize(("variant", "padding", "wasted"), [("original", 2, 1), ("no_waste", 0, 0)])
def test_the_executor_is_told_what_static_batching_wastes(variant, padding, wasted):
    """Padding rides on the lanes and ended rows on the batch: an executor computes both for nothing."""
    core, batches, _ = build("static", variant=variant)
    core.submit(ask("A", 6, 1))
    core.submit(ask("B", 4, 2))
    while core.has_work:
        core.step()
        core.check()
    assert [[lane.padding for lane in batch.lanes] for batch in batches] == [[0, padding], [0]]
    assert [batch.num_wasted_rows for batch in batches] == [0, wasted]


def test_an_abort_of_the_last_row_returns_the_batch():
    """Rows that had ended are not held for ever when the client of the last running one leaves."""
    core, _, _ = build("static")
    core.submit(ask("A", 6, 1))
    core.submit(ask("B", 4, 9))
    core.step()
    core.abort("B")
    assert not core.has_work
    assert core.scheduler.kv.num_free == 20


@pytest.mark.parametrize(
    ("policy", "settings", "scene", "clue"),
    [
        ("static", {}, one_request(30, 9), "raise num_blocks"),
        ("static", {"max_batch_size": "2"}, one_request(4, 2, n=3), "raise max_batch_size"),
        ("orca", {"num_slots": "11"}, one_request(10, 2), "raise num_slots"),
        ("tgi", {"max_batch_total_tokens": "12"}, one_request(10, 4), "max_batch_total_tokens"),
        ("tgi", {"max_batch_prefill_tokens": "9"}, one_request(10, 2), "raise the budget"),
        ("trtllm", {"max_num_tokens": "9"}, one_request(10, 2), "set chunked"),
        ("trtllm", {}, one_request(20, 3, n=2), "lower max_tokens or n"),
        ("trtllm", {"capacity": "max_utilization"}, one_request(30, 9), "raise num_blocks"),
    ],
)
def test_what_can_never_run_is_rejected(policy, settings, scene, clue):
    """A request that would wait for ever is refused at once, with the way out."""
    (record,) = run_scene(scene, policy, settings)
    assert record.rejected == ["A"]
    core, _, events = build(policy, num_blocks=scene.num_blocks, **settings)
    entry = scene.requests[0]
    core.submit(ask("A", entry.prompt, entry.output, n=entry.n))
    core.step()
    (reason,) = [event.reason for event in events if type(event).__name__ == "Rejected"]
    assert clue in reason


@pytest.mark.parametrize(
    ("policy", "settings"),
    [
        ("static", {"max_batch_size": "0"}),
        ("static", {"variant": "early"}),
        ("orca", {"num_workers": "0"}),
        ("orca", {"num_slots": "0"}),
        ("tgi", {"waiting_served_ratio": "-1"}),
        ("tgi", {"max_batch_total_tokens": "0"}),
        ("trtllm", {"max_num_tokens": "0"}),
        ("trtllm", {"capacity": "none"}),
        ("trtllm", {"chunk_policy": "equal_progress"}),
    ],
)
def test_bad_parameters_are_refused_by_name(policy, settings):
    """A parameter out of its bounds, or one that would have no effect, is named in the refusal."""
    with pytest.raises(BadSetting, match=next(iter(settings))):
        make_policy(policy, settings)


def test_orca_reserves_as_told():
    """pow2 rounds the output up, max takes the model's length; never more than there is, nor less than needed."""
    scene = one_request(6, 5, num_blocks=40)
    free = {
        reserve: run_scene(scene, "orca", {"reserve": reserve, "max_model_len": "64"})[0].free_blocks
        for reserve in ("oracle", "pow2", "max")
    }
    assert free == {"oracle": 40 - 3, "pow2": 40 - 4, "max": 40 - 16}
    capped = run_scene(scene, "orca", {"reserve": "max", "num_slots": "12"})
    assert capped[0].free_blocks == 40 - 3


@pytest.mark.parametrize("reserve", ["oracle", "pow2", "max"])
def test_choices_that_fit_exactly_are_let_in(reserve):
    """Three choices of three blocks each, and ten blocks: what is reserved beyond need must leave whole blocks."""
    records = run_scene(one_request(6, 5, n=3, num_blocks=10), "orca", {"reserve": reserve, "max_model_len": "64"})
    assert (records[0].grants, records[0].free_blocks, records[0].rejected) == ({"A": 6}, 1, [])


def test_a_paused_prompt_longer_than_the_budget_comes_back():
    """Recomputed output may outgrow an uncut budget; the prompt is cut then, for it could not return otherwise."""
    entries = [{"id": name, "arrival": 0, "prompt": 4, "output": 8} for name in "AB"]
    scene = parse_scene({"block_size": 2, "num_blocks": 7, "requests": entries})
    records = run_scene(scene, "trtllm", {"capacity": "max_utilization", "max_num_tokens": "8"})
    assert [name for record in records for name in record.preempted] == ["B"]
    assert sorted(name for record in records for name in record.finished) == ["A", "B"]
