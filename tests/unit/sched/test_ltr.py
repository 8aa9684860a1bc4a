from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.sim import load_scene, parse_scene, run_scene
from tests.support.scenes import scenes

SCENES = Path(__file__).parents[2] / "tapes" / "scenes"


@pytest.mark.parametrize(("score", "wanted"), [("fcfs", (1.0, 6.0, 13.0)), ("sjf", (1.3, 1.5, 1.0))])
def test_head_of_line_blocking(score, wanted):
    """ALGORITHMS §17: latencies per token of three jobs of 10, 2 and 1 tokens, first come and shortest first."""
    scene = load_scene(SCENES / "hol.json")
    tape = run_scene(scene, "ltr", {"max_num_seqs": "1", "score": score})
    ends = {name: record.end_s for record in tape for name in record.finished}
    assert tuple(ends[request.id] / request.output for request in scene.requests) == pytest.approx(wanted)


@given(outputs=st.lists(st.integers(1, 12), min_size=1, max_size=7))
def test_one_slot_serves_simultaneous_arrivals_shortest_first(outputs):
    """Without starvation control the serial order is by length, then arrival: the least mean waiting."""
    requests = [{"id": str(at), "prompt": 1, "output": num} for at, num in enumerate(outputs)]
    tape = run_scene(
        parse_scene({"block_size": 4, "num_blocks": 64, "requests": requests}),
        "ltr",
        {"max_num_seqs": "1", "starv": "0"},
    )
    ended = [name for record in tape for name in record.finished]
    assert ended == [str(at) for at in sorted(range(len(outputs)), key=lambda at: outputs[at])]


def test_a_prediction_outweighs_max_output():
    """`predicted` orders where it is given; `sjf` looks at max_output all the same."""
    requests = [
        {"id": "A", "prompt": 1, "output": 2, "max_output": 9, "predicted": 1},
        {"id": "B", "prompt": 1, "output": 2, "max_output": 4},
    ]
    scene = parse_scene({"block_size": 4, "num_blocks": 9, "requests": requests})
    first = {
        score: next(iter(run_scene(scene, "ltr", {"max_num_seqs": "1", "score": score})[0].grants))
        for score in ("predicted", "sjf")
    }
    assert first == {"predicted": "A", "sjf": "B"}


@given(scene=scenes(max_requests=6), extra=st.integers(0, 8), period=st.integers(1, 4))
def test_nobody_starves_for_long(scene, extra, period):
    """With one slot and room for all, a gap between runs is at most starv + what the promoted ahead may take.

    That holds while nobody starves again before the others had their turns: starv is at least all periods.
    """
    starv = period * len(scene.requests) + extra
    roomy = parse_scene(
        {
            "block_size": 1,
            "num_blocks": 1000,
            "requests": [
                {"id": request.id, "arrival": request.arrival, "prompt": 1, "output": request.output}
                for request in scene.requests
            ],
        }
    )
    settings = {"max_num_seqs": "1", "starv": str(starv), "period": str(period)}
    tape = run_scene(roomy, "ltr", settings)
    bound = starv + period * len(scene.requests)
    last = {request.id: request.arrival for request in roomy.requests}
    for record in tape:
        for name in record.grants:
            assert record.start_s - last[name] <= bound
            last[name] = record.start_s


@given(scene=scenes(), budget=st.integers(1, 30))
def test_the_budget_binds(scene, budget):
    """No step computes more tokens than the budget, and everyone ends."""
    tape = run_scene(scene, "ltr", {"max_num_batched_tokens": str(budget), "preemption": "recompute"})
    assert all(sum(record.grants.values()) <= budget for record in tape)
    assert sorted(name for record in tape for name in record.finished) == sorted(r.id for r in scene.requests)


def test_starved_ones_do_not_undo_each_other_for_ever():
    """Six take turns of one step in memory for one of them: each prefill takes two, and yet all come to their end."""
    sizes = {"A": (1, 5), "B": (1, 3), "C": (3, 3), "D": (1, 4), "E": (3, 3), "F": (3, 3)}
    requests = [{"id": name, "prompt": prompt, "output": output} for name, (prompt, output) in sizes.items()]
    requests[-1]["arrival"] = 1.5
    settings = {
        "score": "srtf",
        "starv": "4",
        "period": "1",
        "preemption": "recompute",
        "max_num_batched_tokens": "4",
        "max_num_seqs": "1",
    }
    tape = run_scene(parse_scene({"block_size": 1, "num_blocks": 7, "requests": requests}), "ltr", settings)
    assert sorted(name for record in tape for name in record.finished) == sorted(sizes)
    assert len(tape) < 1_000
