import logging
import math

import pytest
from prometheus_client.parser import text_string_to_metric_families

from headway.core import (
    Admitted,
    Arrived,
    Finished,
    FinishReason,
    Preempted,
    PreemptMethod,
    Rejected,
    Request,
    SamplingParams,
    StepRecord,
    TokenEmitted,
)
from headway.engine.outputs import EngineStats
from headway.obs import EngineMetrics, Histogram
from headway.obs.histogram import LATENCY_S, STEP_TOKENS, TOKEN_S, TTFT_S, one_two_five


def life(name, num_tokens, reason, *, begin_s=0.0, step_s=0.05, num_cached=0, **params):
    """All events of one request: admitted after one step, a token each step."""
    request = Request(id=name, prompt_ids=(1,) * 10, max_output=50, arrival_s=begin_s, params=SamplingParams(**params))
    yield Arrived(request, begin_s)
    if num_tokens >= 0:
        yield Admitted(name, name, num_cached, is_first=True, at_s=begin_s + step_s)
    for index in range(num_tokens):
        yield TokenEmitted(name, name, 0, index, 5, begin_s + (index + 2) * step_s)
    yield Finished(request, reason, max(num_tokens, 0), num_cached, begin_s + 9)


def samples(metrics, name):
    """{labels but model_name: value} of one sample name."""
    found = {}
    for family in text_string_to_metric_families(metrics.render().decode()):
        for sample in family.samples:
            if sample.name == f"headway:{name}":
                assert sample.labels["model_name"] == metrics_name(metrics)
                found[tuple(value for label, value in sample.labels.items() if label != "model_name")] = sample.value
    return found


def metrics_name(metrics):
    return metrics._model_name


@pytest.fixture
def metrics():
    return EngineMetrics("m", EngineStats)


def test_one_event_one_count(metrics):
    """PUBLIC_ISSUES 8.1: TTFT once per request with a token, the rest once per complete request; aborts apart."""
    metrics.on_events(list(life("a", 5, FinishReason.STOP, max_tokens=40, n=1)))
    metrics.on_events(list(life("b", 3, FinishReason.LENGTH, num_cached=4)))
    metrics.on_events(list(life("c", 0, FinishReason.ABORT)))
    metrics.on_events(list(life("d", 2, FinishReason.ABORT)))
    metrics.on_events(list(life("e", -1, FinishReason.ABORT)))
    for name, value in {
        "time_to_first_token_seconds_count": 3,
        "e2e_request_latency_seconds_count": 2,
        "request_queue_time_seconds_count": 2,
        "request_prompt_tokens_sum": 20,
        "request_generation_tokens_sum": 8,
        "request_params_max_tokens_sum": 40 + 16,
        "inter_token_latency_seconds_count": 4 + 2 + 1,
        "generation_tokens_total": 10,
        "prompt_tokens_total": 30,
        "prefix_cache_queries_total": 40,
        "prefix_cache_hits_total": 4,
    }.items():
        assert samples(metrics, name) == {(): value}, name
    ended = {("stop",): 1, ("length",): 1, ("abort",): 3, ("error",): 0, ("deadline",): 0}
    assert samples(metrics, "request_success_total") == ended


def test_latencies_land_in_the_right_buckets(metrics):
    """PUBLIC_ISSUES 8.2: steps of 60 ms are seen as 60 ms: nothing at or below 50, all at or below 75."""
    for at in range(20):
        metrics.on_events(list(life(f"r{at}", 10, FinishReason.STOP, begin_s=at, step_s=0.06)))
    buckets = samples(metrics, "inter_token_latency_seconds_bucket")
    assert (buckets["0.05",], buckets["0.075",]) == (0, 180)
    total = samples(metrics, "inter_token_latency_seconds_sum")[()]
    assert total / 180 == pytest.approx(0.06)


def test_returning_from_a_preemption_is_no_cache_hit(metrics):
    """PUBLIC_ISSUES 8.4: what a request finds of its own is counted apart."""
    metrics.on_events(list(life("a", 2, FinishReason.STOP))[:3])
    metrics.on_events(
        [Preempted("a", "a", PreemptMethod.RECOMPUTE, 1.0), Admitted("a", "a", 8, is_first=False, at_s=2.0)]
    )
    assert samples(metrics, "prefix_cache_hits_total") == {(): 0}
    assert samples(metrics, "prefix_cache_recovered_total") == {(): 8}
    assert samples(metrics, "num_preemptions_total") == {(): 1}


def test_steps_and_rejections(metrics):
    """Tokens of a step are those of all its grants; a rejection is counted and leaves nothing behind."""
    request = Request(id="x", prompt_ids=(1,), max_output=1)
    metrics.on_events([StepRecord(0, 0.0, grants={"a": 6, "b": 4}), Arrived(request, 0.0), Rejected(request, "", 1.0)])
    assert samples(metrics, "iteration_tokens_total_sum") == {(): 10}
    assert samples(metrics, "requests_rejected_total") == {(): 1}


def test_gauges_are_as_fresh_as_the_snapshot():
    """PUBLIC_ISSUES 8.13: the load is asked for when the page is read."""
    stats = EngineStats(num_running=3, num_waiting=2, num_swapped=1, num_blocks=10, num_free_blocks=4)
    metrics = EngineMetrics("m", lambda: stats)
    assert samples(metrics, "num_requests_running") == {(): 3}
    assert samples(metrics, "num_requests_waiting") == {(): 2}
    assert samples(metrics, "num_requests_swapped") == {(): 1}
    assert samples(metrics, "kv_cache_usage_perc")[()] == pytest.approx(0.6)


@pytest.mark.parametrize("name", ["plain", 'qu"ote', "back\\slash", "new\nline", "é🙂", "{a=b}"])
def test_the_page_is_well_formed(name):
    """PUBLIC_ISSUES 8.9: it parses with any model name; HELP and TYPE once per family; counters end in _total."""
    metrics = EngineMetrics(name, EngineStats)
    metrics.on_events(list(life("a", 5, FinishReason.STOP)))
    text = metrics.render().decode()
    families = list(text_string_to_metric_families(text))
    assert all(sample.labels["model_name"] == name for family in families for sample in family.samples)
    kinds = [line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")]
    assert len(kinds) == len(set(kinds)) == len(families)
    for family in families:
        assert family.documentation
        for sample in family.samples if family.type == "counter" else ():
            assert sample.name.endswith("_total")
    assert text == metrics.render().decode()


def test_the_first_page_has_every_family():
    """Before any request all series exist with zeros, so that rates begin at the first one."""
    text = EngineMetrics("m", EngineStats).render().decode()
    names = {family.name for family in text_string_to_metric_families(text)}
    assert {
        "headway:num_requests_running",
        "headway:num_requests_waiting",
        "headway:kv_cache_usage_perc",
        "headway:prompt_tokens",
        "headway:generation_tokens",
        "headway:request_success",
        "headway:time_to_first_token_seconds",
        "headway:inter_token_latency_seconds",
        "headway:request_time_per_output_token_seconds",
        "headway:e2e_request_latency_seconds",
        "headway:request_queue_time_seconds",
        "headway:request_inference_time_seconds",
        "headway:request_prefill_time_seconds",
        "headway:request_decode_time_seconds",
        "headway:request_prompt_tokens",
        "headway:request_generation_tokens",
        "headway:request_params_n",
        "headway:request_params_max_tokens",
        "headway:iteration_tokens_total",
        "headway:cache_config_info",
    } <= names


def test_the_cache_is_described_once():
    """Settings that never change are labels of a gauge that is always 1, as in vLLM."""
    metrics = EngineMetrics("m", lambda: EngineStats(block_size=16, num_blocks=7))
    assert samples(metrics, "cache_config_info") == {("16", "7"): 1}


def test_a_mistake_in_here_never_reaches_the_engine(metrics, caplog):
    """PUBLIC_ISSUES 8.6: nothing is raised, and the log has one entry per minute, not one per step."""
    caplog.set_level(logging.ERROR)
    for _ in range(100):
        metrics.on_events([Admitted("a", "a", -5, is_first=False, at_s=0.0)])
    assert len(caplog.records) == 1
    metrics.on_events(list(life("a", 1, FinishReason.STOP)))
    assert samples(metrics, "generation_tokens_total") == {(): 1}


def test_nothing_is_kept_of_ended_requests(metrics):
    """PUBLIC_ISSUES 12.10: after any number of requests and endings no record is left."""
    for at, reason in enumerate([*FinishReason] * 50):
        metrics.on_events(list(life(f"r{at}", at % 4 - 1, reason)))
    assert metrics.num_live == 0


def test_values_on_an_edge_belong_below_it():
    """Prometheus' buckets are "less or equal", and they accumulate up to +Inf."""
    histogram = Histogram((1, 2, 5))
    for value in (0, 1, 1.5, 2, 5, 6, math.inf):
        histogram.add(value)
    assert histogram.snapshot()[0] == [("1.0", 2), ("2.0", 4), ("5.0", 5), ("+Inf", 7)]


def test_edges_are_those_that_dashboards_know():
    """vLLM's: 22 for TTFT, 19 for token gaps, 21 for latencies; lengths in steps of 1, 2, 5."""
    assert (len(TTFT_S), len(TOKEN_S), len(LATENCY_S)) == (22, 19, 21)
    assert (TTFT_S[0], TTFT_S[-1], TOKEN_S[0], LATENCY_S[-1]) == (0.001, 2560.0, 0.01, 7680.0)
    assert STEP_TOKENS == (1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)
    assert one_two_five(100) == (1, 2, 5, 10, 20, 50, 100)
