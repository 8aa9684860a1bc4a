import math
import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.core import StepRecord
from headway.errors import BadSetting
from headway.sched.parts.batchsize import Bounds, LatencySearch, LengthEstimate, memory_batch, safety_tokens
from headway.sched.policies.dynamic_batch import DynamicBatch
from headway.sim import load_scene, parse_scene, picture, run_scene

SCENES = Path(__file__).parents[2] / "tapes" / "scenes"
BOUNDS = Bounds(least=1, most=256, width=16, slack=4)


class Watched(DynamicBatch):
    """Notes the batch size after each step."""

    log: list[int] = []  # noqa: RUF012  # of the latest run, for the test that made it

    def on_event(self, event):
        super().on_event(event)
        if isinstance(event, StepRecord):
            self.log.append(self.batch_size)


def test_the_search_converges_as_published():
    """ALGORITHMS §13: target 50 ms, plant 20 + 0.25 b, from 64 to the fixed point 121."""
    search = LatencySearch(BOUNDS, target=50.0, deadband=2.0)
    size, trace = 64, []
    for _ in range(6):
        size = search.update(20 + 0.25 * size, size)
        trace.append(((search.low, search.high), size))
    assert trace == [
        ((64, 256), 160),
        ((60, 160), 110),
        ((110, 164), 137),
        ((106, 137), 121),
        ((113, 129), 121),
        ((113, 129), 121),
    ]


def test_the_memory_rule_and_the_lesser_of_both():
    """ALGORITHMS §13: 60 000 tokens less 2 000, by 512 each, is 113; with the search's 121 the batch is 113."""
    assert memory_batch(60_000, 2_000, 256 + 256) == 113
    assert min(memory_batch(60_000, 2_000, 512), 121) == 113


@given(fixed=st.floats(1, 60), slope=st.floats(0.05, 2.0), start=st.integers(1, 256))
def test_a_monotone_plant_comes_within_reach_of_its_target(fixed, slope, start):
    """After a few dozen windows the latency is off by at most the deadband and half the width, or at a bound."""
    search = LatencySearch(BOUNDS, target=80.0, deadband=2.0)
    size = start
    for _ in range(60):
        size = search.update(fixed + slope * size, size)
        assert 1 <= search.low <= search.high <= 256
        assert search.high - search.low >= 16 or search.low == 1 or search.high == 256
    ideal = min(256.0, max(1.0, (80.0 - fixed) / slope))
    assert abs(size - ideal) * slope <= 2.0 + slope * (16 / 2 + 4)


@given(seed=st.integers(0, 100))
def test_memory_overflows_as_rarely_as_asked(seed):
    """With lengths drawn at random, the batch of Alg. 1 exceeds memory about as often as the bound says."""
    rng = random.Random(seed)
    mean, deviation, capacity = 512.0, 200.0, 60_000.0
    safety = safety_tokens(capacity, mean, deviation**2, overflow=0.05)
    size = memory_batch(capacity, safety, mean)
    overflows = sum(sum(rng.gauss(mean, deviation) for _ in range(size)) > capacity for _ in range(300))
    assert overflows / 300 <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / 300)


def test_the_estimate_follows_a_change_of_lengths():
    """Outputs that double raise the expected length within a few dozen endings."""
    estimate = LengthEstimate()
    estimate.arrived(100, 500)
    assert estimate.total[0] == 600
    for _ in range(200):
        estimate.ended(100)
    assert estimate.total[0] == pytest.approx(200)
    for _ in range(100):
        estimate.ended(200)
    assert estimate.total[0] == pytest.approx(300, rel=0.01)


def test_the_batch_size_binds():
    """No more sequences run than the batch size says, though the base would admit all at once."""
    requests = [{"id": f"r{at}", "prompt": 4, "output": 4} for at in range(30)]
    scene = parse_scene({"block_size": 4, "num_blocks": 12, "requests": requests})
    Watched.log.clear()
    tape = run_scene(scene, f"{__name__}:Watched", {"batchsize_start": "2", "batchsize_upper": "40"})
    assert len(tape[0].grants) == 2
    assert max(len(record.grants) for record in tape) <= max(Watched.log) <= 48 // 8
    assert not any(record.preempted for record in tape)


def test_latency_shrinks_the_batch():
    """Steps that take longer than the target bring the batch size down to its least."""
    requests = [{"id": f"r{at:02}", "prompt": 1, "output": 30} for at in range(40)]
    scene = parse_scene({"block_size": 4, "num_blocks": 400, "requests": requests})
    Watched.log.clear()
    settings = {"tbt_target": "0.5", "deadband": "0.1", "width": "2", "batchsize_start": "16", "interval": "2"}
    run_scene(scene, f"{__name__}:Watched", settings | {"memory": "off"})
    assert Watched.log[-1] <= 2


def test_with_room_for_all_it_is_its_base():
    """Where neither rule binds, the tape is the base's."""
    scene = load_scene(SCENES / "W.json")
    base = run_scene(scene, "vllm", {"max_num_batched_tokens": "8"})
    around = run_scene(scene, "dynamic_batch", {"max_num_batched_tokens": "8", "base": "vllm"})
    assert picture(scene, around) == picture(scene, base)


def test_a_size_that_nothing_can_change_is_refused():
    """Both rules off is a contradiction, and said so."""
    with pytest.raises(BadSetting, match="nothing would ever change"):
        run_scene(load_scene(SCENES / "W.json"), "dynamic_batch", {"memory": "off"})
