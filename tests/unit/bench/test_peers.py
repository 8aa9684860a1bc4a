"""The comparison with peers: what its ratios and gaps mean."""

import pytest

from benchmarks.peers.figures import figures
from benchmarks.peers.results import Results, Run, add, read
from benchmarks.peers.systems import Answer, Measured
from benchmarks.peers.targets import verdicts
from benchmarks.peers.work import LONG_AT_S, WORKS


def _run(system, round_id, rate):
    return Run(work="serving16", system=system, round=round_id, figures={"output_tok_s": rate})


def test_a_ratio_is_made_within_a_round():
    """A slow phase of the machine meets both systems of a round, so it must not show in the ratio."""
    runs = [_run("a", "1", 100.0), _run("b", "1", 50.0), _run("a", "2", 10.0), _run("b", "2", 5.0), _run("a", "3", 9.0)]
    ratio = Results(runs).ratio("serving16", "a", "b", "output_tok_s")
    assert ratio is not None
    assert (ratio.value, ratio.low, ratio.high, ratio.size) == (2.0, 2.0, 2.0, 2)


def test_runs_of_several_calls_add_up(tmp_path):
    """A comparison may be made in parts: every call appends to the same file."""
    path = tmp_path / "results" / "peers.jsonl"
    for k in range(2):
        add(path, _run("headway", str(k), 60.0))
        add(path, _run("llama.cpp Q8_0", str(k), 10.0))
    (verdict,) = verdicts(Results(read(path)))
    assert verdict.is_met
    assert verdict.ratio.size == 2


def test_of_times_the_shorter_is_better():
    """The ratio of a latency target says how many times shorter ours is."""
    runs = [
        Run(work="interference", system="headway itl 300", round="1", figures={"itl_p99_ms": 20.0}),
        Run(work="interference", system="openvino", round="1", figures={"itl_p99_ms": 40.0}),
    ]
    (verdict,) = verdicts(Results(runs))
    assert verdict.ratio.value == 2.0


def test_gaps_count_while_long_prompts_are_computed():
    """What a short stream feels after the last long prompt's answer is not part of its disturbed gaps."""
    calm = [LONG_AT_S[0] - 2.0 + 0.1 * k for k in range(10)]
    disturbed = [LONG_AT_S[0] + 0.5 * k for k in range(1, 4)]
    after = [LONG_AT_S[0] + 10.0]
    answers = [
        Answer(kind="short", num_prompt=152, sent_s=0.0, token_s=[*calm, *disturbed, *after]),
        Answer(kind="long", num_prompt=1500, sent_s=LONG_AT_S[0], token_s=[LONG_AT_S[0] + 1.5]),
    ]
    found = figures("interference", Measured(answers=answers, duration_s=20.0, start_s=1.0, resident_bytes=0))
    assert found["calm_itl_p50_ms"] == pytest.approx(100.0)
    assert found["itl_p50_ms"] == pytest.approx(1050.0)
    assert found["long_ttft_ms"] == pytest.approx(1500.0)


def test_no_prompt_is_sent_twice():
    """Items of one piece of work differ in their seeds, of which their prompts are made."""
    for work in WORKS.values():
        assert len({item.seed for item in work.items}) == len(work.items)
