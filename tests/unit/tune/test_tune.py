"""Tuning: promises are read and judged, the search finds a setting whose worth is known, serve takes the file."""

import itertools
import json
import math
import tomllib
from dataclasses import replace

import pytest

from headway.bench import Call
from headway.engine import EngineConfig, build_engine
from headway.engine.door import Door
from headway.errors import BadSetting
from headway.report import Outcome as Ending
from headway.report import RequestRecord, RunRecord, StepSample
from headway.sim import Fitted, Plant
from headway.tune import (
    Effort,
    Lab,
    Sample,
    Setting,
    SloTable,
    Traffic,
    as_document,
    config_text,
    read_slo,
    tune,
    tuning_page,
)
from headway.tune.guards import Guards
from headway.tune.lab import judge, ranked, unlike_first
from headway.tune.verify import LiveRuns
from headway.workload import parse_workload
from tests.support.tiny_model import write_tiny_gguf

COST = Fitted(rows=((1, 5e-3), (8, 6e-3), (64, 40e-3)), drawn_s=2e-4, context_s=1e-6, attend_s=1e-6, host_s=5e-4)
SLO = SloTable({"ttft_p95_ms": 800, "itl_p95_ms": 60, "queue_wait_p95_ms": 400, "kv_cache_utilization_max": 0.9})


def traffic(num=8, **more):
    spec = {
        "num_requests": num,
        "arrivals": {"process": "poisson", "rate": 4.0},
        "lengths": {"prompt": "uniform:low=10,high=400", "output": "uniform:low=4,high=8"},
        **more,
    }
    return Traffic.of(parse_workload(spec), num)


QUICK = Effort(num_finalists=2, num_verified=2, concurrency=(32, 64), budgets=(128, 512))


def lab(slo=SLO, num_blocks=400):
    return Lab(Plant(cost=COST, num_blocks=num_blocks, context=2048), slo)


def sample(factor=1.0, rate=100.0, itl=50.0, broken=(), **setting):
    return Sample(
        stage="x",
        setting=Setting(**setting),
        factor=factor,
        output_rate=rate,
        itl_p99_ms=itl,
        values={},
        broken=broken,
    )


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("slo.toml", "ttft_p95_ms = 1500\nitl_p95_ms = 120\n"),
        ("slo.toml", "[slo]\nttft_p95_ms = 1500\nitl_p95_ms = 120\n"),
        ("slo.json", '{"ttft_p95_ms": 1500, "itl_p95_ms": 120}'),
        ("slo.yaml", "ttft_p95_ms: 1500\nitl_p95_ms: 120\n"),
        ("slo.txt", "ttft_p95_ms 1500, itl_p95_ms 120  # as agreed\n"),
        ("slo", "ttft_p95_ms=1500\nitl_p95_ms = 120\n"),
    ],
)
def test_a_table_has_many_spellings(tmp_path, name, text):
    """TOML, JSON, YAML, or plain lines."""
    path = tmp_path / name
    path.write_text(text)
    assert read_slo(path).limits == {"ttft_p95_ms": 1500, "itl_p95_ms": 120}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty"),
        ("ttft_p95_ms fast", "line 1: 'ttft_p95_ms fast'"),
        ("speed_p95_ms 3", "has 'speed_p95_ms'; known: ttft_pNN_ms"),
        ("ttft_p95_ms -3", "it must be a number above 0"),
        ("kv_cache_utilization_max 88", "at most 1"),
    ],
)
def test_a_wrong_table_is_one_message(tmp_path, text, message):
    """With the file, and the line where there is one."""
    path = tmp_path / "slo.txt"
    path.write_text(text)
    with pytest.raises(BadSetting, match=message) as caught:
        read_slo(path)
    assert "slo.txt" in str(caught.value)


def record(**fields):
    base = {"id": "a", "intended_s": 0.0, "outcome": Ending.OK, "num_prompt": 5, "num_output": 3}
    return RequestRecord(
        **{**base, "scheduled_s": 0.1, "first_s": 0.2, "last_s": 0.6, "token_s": [0.2, 0.3, 0.6], **fields}
    )


def test_who_lost_patience_has_waited_until_then():
    """A setting that makes half of the clients leave without a token keeps no promise to the other half alone."""
    gone = {"scheduled_s": None, "first_s": None, "last_s": None, "token_s": (), "num_output": 0}
    left = record(outcome=Ending.CANCELLED, closed_s=4.0, **gone)
    begun = record(outcome=Ending.CANCELLED, closed_s=4.0, **{**gone, "scheduled_s": 0.5})
    read = record(outcome=Ending.CANCELLED, closed_s=4.0, scheduled_s=None)
    refused = record(outcome=Ending.REFUSED, closed_s=9.0, **gone)
    table = SloTable({"ttft_p99_ms": 1000, "queue_wait_p99_ms": 1000, "e2e_p99_ms": 1000})

    def seen(*records):
        return tuple(table.values(RunRecord(requests=[*records, refused], duration_s=9.0)).values())

    assert seen(left) == (4000.0, 4000.0, math.inf)
    assert seen(begun) == (4000.0, 500.0, math.inf)
    assert seen(read) == (200.0, math.inf, math.inf)
    assert seen(record()) == pytest.approx((200.0, 100.0, 600.0))


def test_a_run_is_judged_by_the_table():
    """Percentiles in milliseconds, the fullest the cache was, the share refused; the worst excess first."""
    table = SloTable(
        {
            "ttft_p50_ms": 100,
            "itl_p99_ms": 250,
            "tpot_p50_ms": 500,
            "e2e_p50_ms": 700,
            "queue_wait_p95_ms": 150,
            "kv_cache_utilization_max": 0.5,
            "admission_reject_rate_max": 0.1,
        }
    )
    refused = record(id="b", outcome=Ending.REFUSED, scheduled_s=None, first_s=None, last_s=None, token_s=[])
    steps = [StepSample(start_s=0.0, duration_s=0.1, kv_use=use) for use in (0.2, 0.7)]
    made = judge("x", Setting(), 1.0, RunRecord(requests=[record(), refused], duration_s=1.0, steps=steps), table)
    assert made.values == pytest.approx(
        {
            "ttft_p50_ms": 200,
            "itl_p99_ms": 298,
            "tpot_p50_ms": 200,
            "e2e_p50_ms": 600,
            "queue_wait_p95_ms": 100,
            "kv_cache_utilization_max": 0.7,
            "admission_reject_rate_max": 0.5,
        }
    )
    assert made.broken == ("admission_reject_rate_max", "ttft_p50_ms", "kv_cache_utilization_max", "itl_p99_ms")
    assert made.output_rate == pytest.approx(6 / 0.6)


def test_a_run_without_an_answer_keeps_nothing():
    """No first token is later than any limit."""
    refused = record(outcome=Ending.REFUSED, scheduled_s=None, first_s=None, last_s=None, token_s=[])
    made = judge("x", Setting(), 1.0, RunRecord(requests=[refused], duration_s=1.0), SLO)
    assert math.isinf(made.values["ttft_p95_ms"])
    assert "ttft_p95_ms" in made.broken


def test_traffic_is_scaled_and_smoothed():
    """Twice as fast, half the moments; steady traffic has the mean lengths in even steps and nobody who leaves."""
    own = traffic(behaviour={"cancel_share": 1.0, "cancel_after_tokens": 2})
    assert own.at(2.0).rate == pytest.approx(2 * own.rate)
    assert all(item.cancel_tokens == 2 for item in own.items)
    steady = own.steady()
    assert len({(item.num_prompt, item.num_output) for item in steady.items}) == 1
    assert {item.cancel_tokens for item in steady.items} == {None}
    assert steady.items[2].at_s - steady.items[1].at_s == pytest.approx(1 / own.rate)
    mean = sum(item.num_prompt for item in own.items) / len(own.items)
    assert steady.items[0].num_prompt == round(mean)


def test_the_best_rate_is_where_a_promise_breaks():
    """It keeps all promises, and 6 % more does not."""
    here, own = lab(), traffic()
    best = here.best_rate("x", Setting(policy="vllm", max_num_batched_tokens=256), own)
    assert best.keeps
    assert not here.sample("x", best.setting, own, best.factor * 1.07).keeps


def test_ranking_prefers_kept_promises_then_rate_then_gaps():
    """Equal within 5 % is equal."""
    kept, faster, broken = sample(), sample(factor=1.5), sample(factor=9.0, broken=("x",))
    smoother = sample(factor=1.01, itl=20.0)
    assert ranked([kept, broken, smoother, faster]) == [faster, smoother, kept, broken]


@pytest.fixture(scope="module")
def outcome():
    here = lab()
    return tune(here, traffic(), policy="headway", effort=QUICK, on_progress=lambda *_: None)


def test_a_rate_at_which_all_requests_come_at_once_is_the_last_that_is_tried():
    """Faster cannot be told from as fast: the search ends there, and nobody reads that it found a limit."""
    easy = lab(SloTable({"ttft_p95_ms": 1e6}))
    found = tune(easy, traffic(), policy="vllm", effort=QUICK, on_progress=lambda *_: None)
    assert max(one.factor for one in found.samples) < 1000.0
    assert found.chosen.keeps
    assert found.chosen.is_burst
    assert found.beyond == []
    assert "--max-requests" in found.breaks_first()
    assert "no limit of this machine" in tuning_page(found, {}, "")


def test_what_came_out_alike_is_run_live_last():
    """Whoever was as good as one before it in every figure goes behind all others; nobody is lost."""
    first, other = sample(factor=2.0), sample()
    twin = replace(first, setting=replace(first.setting, max_num_seqs=32))
    assert unlike_first([first, twin, other]) == [first, other, twin]


def test_a_twin_that_keeps_its_promises_goes_before_whatever_breaks_one():
    """A live run is worth more on the same good setting than on one that is known to be bad."""
    first, bad = sample(factor=2.0), sample(factor=3.0, broken=("ttft_p95_ms",))
    twin, bad_twin = (replace(one, setting=replace(one.setting, max_num_seqs=32)) for one in (first, bad))
    assert unlike_first([first, twin, bad, bad_twin]) == [first, twin, bad, bad_twin]


def test_all_stages_leave_their_evidence(outcome):
    """Five of them, and what breaks beyond; the choice is no worse than the baseline on the real traffic."""
    assert [stage.name for stage in outcome.stages] == [
        "baseline",
        "concurrency",
        "budget",
        "real traffic",
        "guardrails",
    ]
    assert outcome.stages[0].samples[0].setting == Setting(kv_limit=0.9)
    real = outcome.stages[3].samples
    base = next(one for one in real if one.setting == Setting(kv_limit=0.9))
    assert ranked([base, outcome.chosen])[0].factor <= outcome.chosen.factor * 1.06
    assert outcome.is_kept
    assert any(one.broken for one in outcome.beyond)
    assert "at" in outcome.breaks_first()
    rates = [one.output_rate for one in outcome.frontier]
    assert rates == sorted(rates, reverse=True)


def test_no_setting_of_a_grid_is_a_tenth_better():
    """PUBLIC_ISSUES 15.10: stages find what trying all finds: at 1.1 times the rate every setting breaks a promise."""
    own, effort = traffic(12), Effort(num_finalists=1, concurrency=(32, 64), budgets=(64, 512))
    chosen = tune(lab(), own, policy="headway", effort=effort, on_progress=lambda *_: None).chosen
    grid = itertools.product(effort.concurrency, effort.budgets)
    settings = [Setting(max_num_seqs=seqs, max_num_batched_tokens=budget, kv_limit=0.9) for seqs, budget in grid]
    assert lab().sample("again", chosen.setting, own, chosen.factor).keeps
    assert not any(lab().sample("grid", setting, own, 1.1 * chosen.factor).keeps for setting in settings)


def test_the_evidence_is_json_and_the_report_a_page(outcome):
    """Nothing in either needs anything else."""
    document = json.loads(json.dumps(as_document(outcome), allow_nan=False))
    assert document["num_runs"] > 20
    assert document["chosen"]["kept"] is True
    page = tuning_page(outcome, {"model": "m"}, config_text(outcome, {}, []))
    assert page.count("<svg") == 1
    assert "http" not in page.split("</style>")[1]


def test_the_config_file_is_toml_with_the_guardrails(outcome):
    """The setting, the promises that a server can watch, and bounds on the queue."""
    text = config_text(outcome, {"num_blocks": 400}, ["a remark"])
    assert text.startswith("# a remark\n")
    found = tomllib.loads(text)
    assert found["policy"] == {"name": "headway"}
    assert found["max-num-seqs"] == outcome.chosen.setting.max_num_seqs
    assert found["slo"] == [
        "ttft_p95_ms=800",
        "itl_p95_ms=60",
        "queue_wait_p95_ms=400",
        "kv_cache_utilization_max=0.9",
    ]
    assert found["max-queued-requests"] >= 8
    assert found["kv-cache-utilization-limit"] == 0.9


def test_live_runs_decide_among_the_best(outcome):
    """A setting that breaks a promise live is passed over for one that does not; the choice says what it came to."""
    tried = []

    def verify(asked, guards):
        tried.append((asked, guards))
        broken = ("itl_p95_ms",) if len(tried) == 1 else ()
        return Sample(
            stage="live",
            setting=asked.setting,
            factor=asked.factor,
            output_rate=50.0,
            itl_p99_ms=9.0,
            values={},
            broken=broken,
            is_live=True,
        )

    found = tune(lab(), traffic(), policy="vllm", effort=QUICK, on_progress=lambda *_: None, verify=verify)
    assert len(tried) == 2
    assert found.verified is not None
    assert found.verified.keeps
    assert found.chosen.setting.max_num_batched_tokens == tried[1][0].setting.max_num_batched_tokens
    assert all(asked.factor < found.chosen.factor * 1.3 for asked, _ in tried)
    assert isinstance(tried[0][1], Guards)


@pytest.mark.parametrize("reached", ["concurrency", "real traffic"])
def test_an_interrupted_search_keeps_what_it_knows(reached):
    """The best so far, of the real traffic where that was begun; every run is told; it says that it is not whole."""
    calls = []

    def interrupt(stage, done, num):
        calls.append(stage)
        if stage == reached and done == (1 if num > 1 else 0):
            raise KeyboardInterrupt

    own = lab()
    found = tune(own, traffic(), policy="vllm", effort=QUICK, on_progress=interrupt)
    assert calls[-1] == reached
    assert not found.is_complete
    assert found.chosen.stage == ("baseline" if reached == "concurrency" else reached)
    told = {id(one) for stage in found.stages for one in stage.samples}
    assert {id(one) for one in own.samples} <= told
    assert as_document(found)["complete"] is False
    assert "interrupted" in found.breaks_first()


def test_an_interrupted_verification_keeps_the_live_runs_before_it():
    """The setting is chosen among those that ran whole; nothing is tried beyond it any more."""

    def verify(sample, guards):
        if tried:
            raise KeyboardInterrupt
        tried.append(sample)
        return replace(sample, is_live=True)

    tried = []
    found = tune(lab(), traffic(), policy="vllm", effort=QUICK, on_progress=lambda *_: None, verify=verify)
    assert not found.is_complete
    assert len(found.live) == 1
    assert found.chosen.setting == tried[0].setting
    assert found.beyond == []
    assert "interrupted" in found.breaks_first()


def test_a_search_interrupted_before_its_first_run_is_none():
    """There is nothing to keep."""

    def interrupt(stage, done, num):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tune(lab(), traffic(), policy="vllm", effort=QUICK, on_progress=interrupt)


def test_the_queue_has_room_for_what_keeps_the_promises():
    """Twice what Little's law allows, or what was seen where that is more; waiting ends at four times the limit."""
    own = traffic()
    guards = Guards.of(SloTable({"ttft_p95_ms": 4000}), own, sample(factor=3.0))
    assert guards.max_queued_requests == math.ceil(2 * 3.0 * own.rate * 4.0)
    assert guards.queue_timeout_ms == 16_000
    seen = replace(sample(factor=3.0), longest_queue=400)
    assert Guards.of(SloTable({"ttft_p95_ms": 4000}), own, seen).max_queued_requests == 800
    assert Guards.of(SloTable({"itl_p95_ms": 40}), own, seen).queue_timeout_ms == 0


def test_a_closed_loop_is_tuned_at_its_own_rate():
    """There is no rate to raise; throughput decides, and nothing is tried beyond."""
    spec = {
        "num_requests": 24,
        "arrivals": {"process": "closed", "users": 4},
        "lengths": {"prompt": 40, "output": 8},
    }
    own = Traffic.of(parse_workload(spec), 24)
    assert not own.scales
    found = tune(lab(), own, policy="vllm", effort=QUICK, on_progress=lambda *_: None)
    assert found.chosen.factor == 1.0
    assert "not tried" in found.breaks_first()
    assert json.dumps(as_document(found), allow_nan=False)


def test_what_cannot_be_tuned_is_refused():
    """A policy without a token budget, and a workload without requests."""
    with pytest.raises(BadSetting, match="nothing to tune"):
        tune(lab(), traffic(5), policy="orca", effort=QUICK, on_progress=lambda *_: None)
    with pytest.raises(BadSetting, match="no requests"):
        Traffic.of(parse_workload({"arrivals": "at_once", "num_requests": 1, "lengths": {"prompt": 1, "output": 1}}), 0)


class TinyCalls:
    """Prompts of letters: the tiny tokenizer knows no common words."""

    def call(self, item):
        ids = [(item.seed * 31 + at * 7) % 200 + 3 for at in range(item.num_prompt)]
        return Call(id=item.id, prompt=ids, num_prompt=item.num_prompt, num_output=item.num_output, seed=item.seed)


def test_a_setting_is_run_live_behind_its_guards(tmp_path, monkeypatch):
    """On a real engine, with its own step and queue limits and each tenant's share, judged by the same table."""
    path = tmp_path / "tiny.gguf"
    write_tiny_gguf(path)
    engine = build_engine(EngineConfig(model=str(path), executor="reference", seed=0, num_blocks=256))
    spec = {
        "num_requests": 6,
        "arrivals": {"process": "poisson", "rate": 100.0},
        "lengths": {"prompt": 9, "output": 4},
        "tenants": [{"name": "blue", "share": 0.5, "weight": 3.0}, {"name": "red", "share": 0.5}],
    }
    own = Traffic.of(parse_workload(spec), 6)
    asked = []
    door = Door.request
    monkeypatch.setattr(Door, "request", lambda *words: asked.append(door(*words)) or asked[-1])
    try:
        live = LiveRuns(engine, own, SLO, calls=TinyCalls(), on_progress=lambda *_: None)
        made = live(sample(max_num_seqs=16, max_num_batched_tokens=64), Guards.of(SLO, own, sample()))
    finally:
        engine.core.executor.close()
    assert {(request.tenant, request.weight) for request in asked} == {("blue", 3.0), ("red", 1.0)}
    assert made.is_live
    assert made.values.keys() == SLO.limits.keys()
    assert all(math.isfinite(value) for value in made.values.values())
    assert made.output_rate > 0
