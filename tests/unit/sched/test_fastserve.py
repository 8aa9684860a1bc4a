from itertools import pairwise
from math import inf
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.errors import BadSetting
from headway.sched.parts.mlfq import Demote, FeedbackQueues
from headway.sim import load_scene, picture, run_scene
from tests.support.scenes import scenes

SCENES = Path(__file__).parents[2] / "tapes" / "scenes"
ONE = {"max_batch_size": "1"}


def mean_completion(scene_name, settings):
    """Mean time from arrival to the last token, in units."""
    scene = load_scene(SCENES / scene_name)
    ends = {name: record.end_s for record in run_scene(scene, "fastserve", settings) for name in record.finished}
    return sum(ends[request.id] - request.arrival for request in scene.requests) / len(scene.requests)


@pytest.mark.parametrize(
    ("settings", "wanted"),
    [
        ({}, 17 / 3),
        ({"demote": "repo"}, 16 / 3),
        ({"skip_join": "false"}, 9.0),
        ({"num_levels": "1", "demote": "repo"}, 8.0),
    ],
    ids=["paper", "repo", "naive", "fcfs"],
)
def test_mean_completion_time_of_three_jobs(settings, wanted):
    """ALGORITHMS §5: the paper's rule, the repository's (the SRPT optimum), naive MLFQ, and FCFS as one level."""
    assert mean_completion("fastserve.json", ONE | settings) == pytest.approx(wanted)


def test_promotion_bounds_the_gap_and_costs_mean_latency():
    """ALGORITHMS §5: with promotion after 3 the long job's tokens are at most 4 apart, not 11; the mean rises."""
    scene = load_scene(SCENES / "starvation.json")
    gaps = {}
    for after in ("0", "3"):
        tape = run_scene(scene, "fastserve", ONE | {"promote_after": after})
        ends = [record.end_s for record in tape if "L" in record.grants]
        gaps[after] = max(later - sooner for sooner, later in pairwise(ends))
        assert tape[-1].end_s == 19
    assert gaps == {"0": 11, "3": 4}
    assert mean_completion("starvation.json", ONE) == pytest.approx(49 / 6)
    assert mean_completion("starvation.json", ONE | {"promote_after": "3"}) == pytest.approx(55 / 6)


def test_the_next_run_is_the_sooner_of_promotion_and_turn():
    """ALGORITHMS §5: times 0, 2 and 1, so the second of three is swapped out first although it is not the last."""
    queues = FeedbackQueues(1.0, 2.0, 4, Demote.PAPER)
    for name, first_run, since in (("a", 2.0, 10.0), ("b", 4.0, 8.0), ("c", 8.0, 1.0)):
        queues.join(name, since, first_run)
    assert [queues.level(name) for name in "abc"] == [1, 2, 3]
    assert queues.next_runs("abc", 10.0, after=10.0, max_batch_size=1) == {"a": 0.0, "b": 2.0, "c": 1.0}
    assert queues.next_runs("c", 10.0, after=inf, max_batch_size=2) == {"c": 5.0}


@given(first_run=st.floats(0.0, 300.0), num_levels=st.integers(1, 8))
def test_a_job_joins_the_highest_level_that_covers_its_first_run(first_run, num_levels):
    """The level is minimal, or the lowest there is."""
    queues = FeedbackQueues(1.0, 2.0, num_levels, Demote.PAPER)
    queues.join("a", 0.0, first_run)
    level = queues.level("a")
    assert queues.quanta[level] >= first_run or level == num_levels - 1
    assert level == 0 or queues.quanta[level - 1] < first_run


@given(st.lists(st.tuples(st.sampled_from("abcdef"), st.integers(1, 9)), max_size=60), st.sampled_from(Demote))
def test_only_promotion_raises_a_job(runs, demote):
    """Running never improves a level; promotion moves exactly those that waited long enough to the top."""
    queues = FeedbackQueues(1.0, 2.0, 4, demote)
    last = {}
    now = 0.0
    for name, elapsed in runs:
        if name not in queues:
            queues.join(name, now, elapsed)
            last[name] = now
            continue
        level = queues.level(name)
        now += elapsed
        queues.ran(name, elapsed, now)
        last[name] = now
        assert queues.level(name) >= level
        low = [other for other in last if queues.level(other) > 0]
        assert set(queues.promote(now, 7.0)) == {other for other in low if now - last[other] >= 7.0}
        queues.check()


@given(scene=scenes(max_requests=6), size=st.integers(1, 3))
def test_short_prompts_make_skip_join_naive(scene, size):
    """When every prompt fits the first quantum, joining by prompt changes nothing."""
    settings = {"max_batch_size": str(size), "init_unit": "24"}
    tapes = [run_scene(scene, "fastserve", settings | {"skip_join": word}) for word in ("true", "false")]
    assert picture(scene, tapes[0]) == picture(scene, tapes[1])


@given(scene=scenes(), size=st.integers(1, 4), after=st.sampled_from([0, 3]))
def test_blocks_stay_free_for_newcomers(scene, size, after):
    """After a step, the batch size in blocks is free, or nobody outside the batch holds any."""
    settings = {"max_batch_size": str(size), "promote_after": str(after)}
    on_device = set()
    for record in run_scene(scene, "fastserve", settings):
        on_device = (on_device - {*record.swapped_out, *record.preempted}) | {*record.swapped_in, *record.grants}
        assert len(record.grants) <= size
        assert record.free_blocks >= size or on_device == set(record.grants)
        on_device -= set(record.finished)


def test_contradictory_settings_are_refused():
    """Keeping blocks free without proactive swapping is a contradiction, and said so."""
    scene = load_scene(SCENES / "fastserve.json")
    with pytest.raises(BadSetting, match="keeps no block free"):
        run_scene(scene, "fastserve", {"swap": "reactive", "min_free_blocks": "3"})
