import json
import math
from dataclasses import asdict, replace

import pytest

from headway.bench.contest import Heat, Standings
from headway.bench.logbook import Logbook
from headway.bench.score import Score, middle, score, spread, sustained_rate
from headway.bench.verdict import claims
from headway.cli.bench_standings import grid
from headway.report import Outcome, RequestRecord, RunRecord, StepSample


def request(number, **fields):
    base = RequestRecord(
        id=f"r{number}",
        intended_s=0.0,
        outcome=Outcome.OK,
        num_prompt=5,
        num_output=3,
        first_s=1.0,
        last_s=2.0,
        token_s=(1.0, 1.5, 2.0),
    )
    return replace(base, **fields)


def a_score(**fields):
    names = Score.__dataclass_fields__
    return Score(**(dict.fromkeys(names, 0) | fields))


def test_a_run_is_scored_over_all_its_whole_answers():
    """Throughput to the last answer, latencies of successes, what the engine told, and how many came to nothing."""
    failed = request(2, outcome=Outcome.FAILED, last_s=9.0)
    run = RunRecord(
        requests=[request(0), request(1, last_s=4.0, token_s=(1.0, 1.5, 4.0)), failed],
        duration_s=9.0,
        client_lag_s=[0.0, 0.002, 0.004],
        server={"num_preemptions": 2, "recomputed_tokens": 7, "wasted_tokens": 1},
    )
    found = score(run)
    assert found.output_throughput == pytest.approx(6 / 4)
    assert (found.ttft_p50_ms, found.itl_max_ms) == (1000.0, 2500.0)
    assert (found.num_preemptions, found.num_recomputed, found.num_wasted, found.num_failed) == (2, 7, 1, 1)
    assert (found.num_ttft, found.num_itl) == (2, 4)
    assert found.lag_p99_ms == pytest.approx(3.96)


def test_the_middle_is_the_median_of_each_figure():
    """A bad round moves nothing."""
    rounds = [a_score(itl_p99_ms=value, num_steps=int(value)) for value in (3.0, 1.0, 100.0)]
    assert (middle(rounds).itl_p99_ms, middle(rounds).num_steps) == (3.0, 3)


def test_the_middle_tells_the_most_failures_of_a_round():
    """One bad round of three is not to be hidden by the two others."""
    assert middle([a_score(num_failed=0), a_score(num_failed=7), a_score(num_failed=0)]).num_failed == 7


def test_a_round_without_an_answer_is_left_out_of_latencies():
    """It has none; its throughput of nothing counts. Where no round has any, there is no figure."""
    none = a_score(itl_p99_ms=math.nan, output_throughput=0.0)
    rounds = [a_score(itl_p99_ms=3.0, output_throughput=9.0), none, a_score(itl_p99_ms=5.0, output_throughput=8.0)]
    assert (middle(rounds).itl_p99_ms, middle(rounds).output_throughput) == (4.0, 8.0)
    assert spread(rounds, "itl_p99_ms") == (3.0, 5.0)
    assert math.isnan(middle([none, none]).itl_p99_ms)


def test_the_table_names_who_had_rounds_without_an_answer():
    """And says which of the rounds its failures are from."""
    fine, none = a_score(num_ttft=4, output_throughput=9.0), a_score(num_failed=4, itl_p99_ms=math.nan)
    text = grid(Standings(scores={(1.0, "tgi"): [fine, none, fine], (1.0, "vllm"): [fine] * 3}), 1.0).to_text()
    assert "failed is the most of any. Runs without an answer, which latencies leave out: tgi 1 of 3." in text


def test_a_run_that_was_over_at_once_has_no_lag():
    """There was no time to be late in; a figure that is none would spoil medians and JSON."""
    assert score(RunRecord(requests=[request(0)], duration_s=0.01)).lag_p99_ms == 0.0


def test_a_log_from_before_the_clients_lag_was_kept_still_counts(tmp_path):
    """Its runs took hours."""
    given = asdict(a_score(itl_p99_ms=3.0))
    del given["lag_p99_ms"]
    lines = [{"about": {}}, {"policy": "vllm", "factor": 0.8, "repeat": 0, "score": given}]
    (tmp_path / "runs.jsonl").write_text("\n".join(map(json.dumps, lines)) + "\n")
    found = Logbook(tmp_path / "runs.jsonl", {}).find(Heat(policy="vllm", factor=0.8, repeat=0))
    assert found == a_score(itl_p99_ms=3.0, lag_p99_ms=0.0)


def test_the_sustained_rate_leaves_the_tail_out():
    """19 of 20 tokens within 2 s, the last one much later: 95 % of ten requests in 2 s."""
    steps = [
        StepSample(start_s=1.0, duration_s=1.0, num_prefill=10),
        StepSample(start_s=2.0, duration_s=1.0, num_decode=9),
    ]
    steps.append(StepSample(start_s=3.0, duration_s=60.0, num_decode=1))
    assert sustained_rate(10, steps) == pytest.approx(9.5 / 2)


def test_claims_compare_headway_with_the_best():
    """Beaten on both counts is beaten; a better ITL of a slow policy is not."""
    ours = a_score(output_throughput=100.0, itl_p99_ms=50.0, ttft_p95_ms=500.0)
    slow = a_score(output_throughput=60.0, itl_p99_ms=10.0, ttft_p95_ms=100.0)
    fast = a_score(output_throughput=110.0, itl_p99_ms=40.0, ttft_p95_ms=600.0)
    assert [claim.holds for claim in claims({"headway": ours, "tgi": slow})] == [True] * 4
    found = claims({"headway": ours, "tgi": slow, "vllm": fast})
    assert [claim.holds for claim in found] == [False, True, False, True]
    assert "vllm" in found[0].text
    assert claims({"vllm": fast}) == []


def test_who_answered_nothing_claims_nothing():
    """Figures that are none are neither lower nor higher than others, and would make every sentence true."""
    nothing = a_score(num_failed=4, itl_p99_ms=math.nan, ttft_p95_ms=math.nan)
    assert claims({"headway": nothing, "vllm": nothing}) == []
    assert claims({"headway": a_score(output_throughput=1.0), "vllm": nothing}) == []
