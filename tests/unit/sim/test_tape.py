"""Tapes end in time, whatever the scene."""

import pytest

from headway.sched import POLICIES
from headway.sim import parse_scene, run_scene


@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_one_that_never_fits_before_a_far_arrival(policy):
    """A prompt larger than the pool is rejected before anybody waits for ever."""
    requests = [
        {"id": "huge", "arrival": 0, "prompt": 100, "output": 2},
        {"id": "late", "arrival": 1e9, "prompt": 3, "output": 2},
    ]
    scene = parse_scene({"block_size": 4, "num_blocks": 4, "requests": requests})
    records = run_scene(scene, policy)
    assert [name for record in records for name in record.rejected] == ["huge"]
    assert records[-1].finished == ["late"]
    assert records[-1].step == 10**9 + 1


def test_the_step_counts_units_from_the_start():
    """Between two requests nothing is listed, and the numbers go on where time is."""
    requests = [{"id": name, "arrival": at, "prompt": 2, "output": 1} for name, at in (("a", 0), ("b", 7.5))]
    records = run_scene(parse_scene({"block_size": 4, "num_blocks": 4, "requests": requests}), "vllm")
    assert [record.step for record in records if record.grants] == [0, 8]


@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_who_can_never_run_is_rejected_under_every_policy(policy):
    """A prompt and an output beyond all memory; the others go on as if these had not come."""
    requests = [
        {"id": "A", "arrival": 0, "prompt": 6, "output": 3},
        {"id": "prompt", "arrival": 0, "prompt": 40, "output": 3},
        {"id": "output", "arrival": 1, "prompt": 18, "output": 9},
        {"id": "B", "arrival": 1, "prompt": 6, "output": 3},
    ]
    tape = run_scene(parse_scene({"block_size": 4, "num_blocks": 5, "requests": requests}), policy)
    assert [name for record in tape for name in record.rejected] == ["prompt", "output"]
    assert sorted(name for record in tape for name in record.finished) == ["A", "B"]


def test_more_choices_than_may_run_are_refused_at_the_tapes_door():
    """`sglang` alone would wait for them for ever."""
    requests = [{"id": "A", "prompt": 2, "output": 2, "n": 3}, {"id": "B", "prompt": 2, "output": 2}]
    scene = parse_scene({"block_size": 4, "num_blocks": 5, "requests": requests})
    tape = run_scene(scene, "sglang", {"max_running_requests": "2"})
    assert [name for record in tape for name in record.rejected] == ["A"]
