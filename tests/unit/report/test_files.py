"""Results in files, and comparisons."""

import csv
import json
from dataclasses import replace

import pytest

from headway.errors import BadSetting
from headway.report import (
    StepSample,
    compare_page,
    compare_runs,
    load_run,
    measure,
    result_json,
    save_csv,
    save_run,
    with_details,
)
from tests.unit.report.runs import TIGHT, refused, request, run_of, steady_run


@pytest.fixture
def run():
    requests = [request(k / 10, slo=TIGHT, tenant="ab"[k % 2], traffic_class="chat") for k in range(60)]
    steps = [StepSample(start_s=k / 10, duration_s=0.01, num_decode=4, kv_use=0.5) for k in range(5)]
    fields = {"target": {"kind": "http", "model": "m"}, "server": {"preemptions": 3.0}, "steps": steps, "label": "one"}
    return run_of([*requests, refused(6.0, slo=TIGHT)], **fields)


def test_vllm_s_keys(run):
    """The document has the keys that plotters of vLLM's results read, and is JSON without NaN."""
    document = with_details(result_json(run), run)
    json.dumps(document, allow_nan=False)
    assert document["completed"] == 60
    assert document["failed"] == 1
    for name in ("ttft", "tpot", "itl", "e2el"):
        assert {f"{part}_{name}_ms" for part in ("mean", "median", "std", "p99")} <= document.keys()
    assert {
        *("duration", "total_input_tokens", "total_output_tokens", "request_throughput", "request_goodput"),
        *("output_throughput", "total_token_throughput", "max_output_tokens_per_s", "max_concurrent_requests"),
        *("ttfts", "itls", "start_times", "errors", "input_lens", "output_lens"),
    } <= document.keys()
    assert document["mean_ttft_ms"] == pytest.approx(100)
    assert document["headway"]["total"]["latency_ms"]["ttft"]["n"] == 60
    assert document["errors"][-1] == "refused: full"
    named = {name: document[name] for name in ("backend", "model_id", "num_prompts", "request_rate")}
    assert named == {"backend": "http", "model_id": "m", "num_prompts": 61, "request_rate": None}
    json.dumps(result_json(run_of([])), allow_nan=False)


def test_the_rate_that_was_asked_for_is_named():
    """A process's rate as it is, and `inf` as vLLM writes it where all comes at once."""
    for arrivals, rate in (({"process": "poisson", "rate": 8}, 8), ({"process": "at_once"}, "inf"), ({}, None)):
        assert result_json(run_of([], workload={"arrivals": arrivals}))["request_rate"] == rate


def test_a_saved_run_is_the_same_run(run, tmp_path):
    """What was saved is loaded again, and gives the same metrics."""
    save_run(run, tmp_path / "new" / "run.json")
    again = load_run(tmp_path / "new" / "run.json")
    assert again.steps == list(run.steps)
    assert (again.label, again.target, again.server) == (run.label, run.target, run.server)
    before, after = measure(run), measure(again)
    assert after.total.num_requests == before.total.num_requests
    assert after.total.latencies.itl.at(99) == pytest.approx(before.total.latencies.itl.at(99), abs=2e-6)
    assert after.tenants.keys() == before.tenants.keys()
    assert after.total.attainment == before.total.attainment


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"record": {"format": 9}}', '{"record": {"format": 1}}', "{"])
def test_other_files_are_refused(tmp_path, text):
    """A file that holds no run ends in one line."""
    path = tmp_path / "x.json"
    path.write_text(text)
    with pytest.raises(BadSetting, match=r"x\.json"):
        load_run(path)


def test_csv_per_request(run, tmp_path):
    """One row per request, with derived latencies."""
    save_csv(run, tmp_path / "run.csv")
    with (tmp_path / "run.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 61
    assert float(rows[0]["ttft_s"]) == pytest.approx(0.1)
    assert (rows[0]["meets_slo"], rows[-1]["outcome"], rows[-1]["ttft_s"]) == ("True", "refused", "")


def test_comparison_tells_difference_from_chance(run):
    """A run twice as slow to its first token is told, and one like it is not."""
    slow = replace(run, label="slow", requests=[request(k / 10, slo=TIGHT, ttft_s=0.3) for k in range(60)])
    rows = {row[0]: row for row in compare_runs([run, slow]).rows}
    assert rows["TTFT P50, ms"][1:] == [pytest.approx(100), pytest.approx(300), pytest.approx(3), "higher"]
    assert rows["TPOT P50, ms"][-1] == "no clear difference"
    assert "slow" in compare_page([run, slow])
    assert "different workloads" not in compare_page([run, slow])
    assert "different workloads" in compare_page([run, replace(slow, workload={"seed": 2})])


def test_comparison_tells_how_well_a_tenant_is_isolated():
    """The victim's TTFT P99 alone and beside a neighbour, and their ratio; the neighbour is in one run only."""
    alone = run_of([request(k, tenant="victim") for k in range(50)])
    beside = [request(k, tenant="victim", ttft_s=0.3) for k in range(50)]
    noisy = run_of([*beside, *(request(k, tenant="noisy", ttft_s=5.0) for k in range(50))])
    rows = [row for row in compare_runs([alone, noisy]).rows if str(row[0]).startswith("TTFT P99 of")]
    assert rows == [
        ["TTFT P99 of victim, ms", pytest.approx(100), pytest.approx(300), pytest.approx(3), "higher"],
    ]


def test_comparison_with_a_run_without_answers():
    """Nothing to compare is said, not divided by."""
    rows = {row[0]: row for row in compare_runs([steady_run(), run_of([refused(k / 10) for k in range(20)])]).rows}
    assert rows["TTFT P50, ms"][-1] == "nothing to compare"


@pytest.mark.parametrize(
    ("place", "value", "what"),
    [
        (("requests", 0, "first_s"), "soon", "first_s is 'soon'; it must be a finite number"),
        (("requests", 0, "last_s"), 1e308, "last_s is 1e"),
        (("requests", 0, "intended_s"), float("nan"), "intended_s is nan"),
        (("requests", 0, "num_output"), -1, "num_output is -1; it must be a whole number"),
        (("requests", 0, "num_prompt"), True, "num_prompt is True"),
        (("requests", 0, "tenant"), "\ud800", "tenant is .* it must be a text"),
        (("requests", 0, "token_s"), [0.1, float("nan")], "token_s must be a list of finite numbers"),
        (("requests", 0, "slo"), {"ttft_s": "fast"}, "ttft_s is 'fast'"),
        (("steps", 0), ["x", 1, 2, 3, 4, 5, 6, 7], "start_s is 'x'"),
        (("server",), {"num_steps": []}, "server is .* it must be an object of numbers"),
        (("client_lag_s",), [None], "client_lag_s must be a list of finite numbers"),
        (("is_complete",), 1, "is_complete is 1; it must be true or false"),
        (("notes",), None, ".*not iterable"),
    ],
)
def test_a_damaged_record_is_refused(run, tmp_path, place, value, what):
    """A value of the wrong kind, or beyond all measure, is named when the file is read: nothing stumbles over it."""
    path = tmp_path / "run.json"
    save_run(run, path)
    document = json.loads(path.read_text())
    *outer, last = place
    inner = document["record"]
    for step in outer:
        inner = inner[step]
    inner[last] = value
    path.write_text(json.dumps(document))
    with pytest.raises(BadSetting, match=f"its record is damaged: {what}"):
        load_run(path)
