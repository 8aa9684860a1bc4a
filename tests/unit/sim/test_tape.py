"""Tapes end in time, whatever the scene."""

import pytest

from headway.errors import BadSetting
from headway.sched import POLICIES
from headway.sim import parse_scene, run_scene


@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_one_that_never_fits_before_a_far_arrival(policy):
    """A prompt larger than the pool is rejected, or named as the one that cannot run, before anybody waits for ever."""
    requests = [
        {"id": "huge", "arrival": 0, "prompt": 100, "output": 2},
        {"id": "late", "arrival": 1e9, "prompt": 3, "output": 2},
    ]
    scene = parse_scene({"block_size": 4, "num_blocks": 4, "requests": requests})
    try:
        records = run_scene(scene, policy)
    except BadSetting as error:
        assert "huge cannot run" in str(error)  # noqa: PT017 - either end is a good one
    else:
        assert [name for record in records for name in record.rejected] == ["huge"]
        assert records[-1].finished == ["late"]
        assert records[-1].step == 10**9 + 1


def test_the_step_counts_units_from_the_start():
    """Between two requests nothing is listed, and the numbers go on where time is."""
    requests = [{"id": name, "arrival": at, "prompt": 2, "output": 1} for name, at in (("a", 0), ("b", 7.5))]
    records = run_scene(parse_scene({"block_size": 4, "num_blocks": 4, "requests": requests}), "vllm")
    assert [record.step for record in records if record.grants] == [0, 8]
