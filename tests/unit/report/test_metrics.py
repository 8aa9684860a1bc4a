"""A run in numbers, against runs whose numbers are known."""

import math

import numpy as np
import pytest

from headway.report import Outcome, bootstrap, jain, measure, over_repeats, percentile, summarize
from headway.report.metrics import max_in_flight
from tests.unit.report.runs import TIGHT, refused, request, run_of, steady_run


def test_percentiles_are_numpy_s_linear_ones():
    """Between neighbours, with the sample size beside; nothing for nothing."""
    values = [0.1, 0.4, 0.2, 0.9]
    summary = summarize(values, [95])
    assert (summary.size, summary.high) == (4, 0.9)
    assert summary.at(95) == pytest.approx(np.percentile(values, 95))
    assert summary.median == pytest.approx(0.3)
    assert math.isnan(summarize([]).median)
    assert summarize([]).size == 0


def test_a_steady_run():
    """100 requests in 9.9 s, 11 tokens each, all alike."""
    metrics = measure(steady_run())
    total = metrics.total
    assert metrics.window.length_s == pytest.approx(9.9)
    assert total.num_requests == 100
    assert total.request_rate == pytest.approx(98 / 9.9, rel=0.02)
    assert total.output_rate == pytest.approx(11 * 98 / 9.9, rel=0.02)
    assert total.latencies.ttft.median == pytest.approx(0.1)
    assert (total.latencies.itl.size, total.latencies.itl.median) == (1000, pytest.approx(0.01))
    assert total.attainment is None


def test_failures_do_not_improve_latencies():
    """Half the requests refused within a millisecond: the others' percentiles stand, and the share is told."""
    requests = [request(k / 10, slo=TIGHT) if k % 2 else refused(k / 10, slo=TIGHT) for k in range(200)]
    metrics = measure(run_of(requests))
    assert metrics.total.latencies.ttft.median == pytest.approx(0.1)
    assert metrics.total.latencies.ttft.size == 100
    assert metrics.total.failure_share == pytest.approx(0.5)
    assert metrics.total.attainment == pytest.approx(0.5)
    assert metrics.total.goodput == pytest.approx(100 / 19.9)


def test_cancelled_requests_are_apart():
    """A client that gave up is neither a success nor a failure, and its tokens count."""
    requests = [request(k / 10, outcome=Outcome.CANCELLED if k % 4 == 0 else Outcome.OK) for k in range(100)]
    total = measure(run_of(requests)).total
    assert (total.outcomes[Outcome.CANCELLED], total.outcomes[Outcome.OK], total.failure_share) == (25, 75, 0)
    assert total.output_rate == pytest.approx(11 * 98 / 9.9, rel=0.02)


def test_jitter_is_taken_per_stream():
    """One stall of a second in one stream shows as that stream's largest gap."""
    stalled = [0.1, 0.11, 1.11, 1.12]
    odd = request(1.0, token_s=[1 + t for t in stalled], first_s=1.1, last_s=2.12, num_output=4)
    latencies = measure(run_of([odd, *(request(k / 10) for k in range(40))])).total.latencies
    assert latencies.largest_gap.high == pytest.approx(1.0)
    assert latencies.largest_gap.median == pytest.approx(0.01)
    assert latencies.gap_deviation.high == pytest.approx(np.std([0.01, 1.0, 0.01]))


def test_prompt_classes_tell_who_waits():
    """Short prompts beside long ones have their own TTFT."""
    requests = [request(k / 10, num_prompt=100 if k % 2 else 5000, ttft_s=0.1 if k % 2 else 2.0) for k in range(60)]
    lengths = measure(run_of(requests)).lengths
    assert list(lengths) == ["1-256", "4097-16384"]
    assert lengths["1-256"].latencies.ttft.median == pytest.approx(0.1)
    assert lengths["4097-16384"].latencies.ttft.median == pytest.approx(2.0)


def test_tenants_and_fairness():
    """Equal service per weight is a Jain index of one; a starved tenant shows in it."""
    even = [request(k / 10, tenant="ab"[k % 2]) for k in range(100)]
    assert measure(run_of(even)).jain_service == pytest.approx(1, abs=1e-3)
    weighted = [request(k / 10, tenant="a" if k % 3 else "b", weight=2.0 if k % 3 else 1.0) for k in range(300)]
    assert measure(run_of(weighted)).jain_service == pytest.approx(1, abs=1e-3)
    starved = [request(k / 10, tenant="ab"[k % 2], num_output=1 if k % 2 else 40, num_expected=40) for k in range(100)]
    metrics = measure(run_of(starved))
    assert metrics.jain_service == pytest.approx(41**2 / (2 * (1 + 40**2)), abs=0.02)
    assert metrics.jain_satisfaction < 0.6
    assert metrics.tenants["a"].output_rate > 20 * metrics.tenants["b"].output_rate


def test_service_gap_counts_only_while_both_have_work():
    """A tenant that comes when the other has gone was not treated unfairly."""
    early = [request(k / 10, tenant="a") for k in range(50)]
    late = [request(20 + k / 10, tenant="b") for k in range(50)]
    assert measure(run_of(early + late)).service_gap == 0
    beside = [request(k / 10, tenant="a", num_output=30) for k in range(50)]
    beside += [request(k / 10, tenant="b", num_output=10) for k in range(50)]
    assert measure(run_of(beside)).service_gap == pytest.approx(50 * 20, rel=0.1)


def test_jain():
    """The index's own bounds."""
    assert jain([3, 3, 3]) == pytest.approx(1)
    assert jain([1, 0, 0, 0]) == pytest.approx(0.25)
    assert math.isnan(jain([0, 0]))


def test_ledger_and_concurrency():
    """Hit rate and preemptions where they are told, and the most requests in flight."""
    told = measure(run_of([request(k / 10, num_cached=40, num_preemptions=k % 2) for k in range(50)])).ledger
    assert (told.hit_rate, told.num_cached, told.num_preemptions) == (0.4, 2000, 25)
    assert measure(steady_run()).ledger.hit_rate is None
    turned_away = [refused(k / 10, num_cached=0, num_prompt=9000) for k in range(50)]
    told = measure(run_of([request(k / 10, num_cached=40) for k in range(50)] + turned_away)).ledger
    assert told.hit_rate == 0.4
    assert max_in_flight([request(k / 10, num_output=21) for k in range(50)]) in (3, 4)


def test_spread_of_repeats_and_bootstrap():
    """Median and extremes of repeats; the interval of a percentile holds the true one."""
    spread = over_repeats([3.0, 1.0, 2.0])
    assert (spread.value, spread.low, spread.high, spread.size) == (2, 1, 3, 3)
    sample = np.random.default_rng(1).exponential(1.0, 2000)
    found = bootstrap(sample, percentile(90))
    assert found.low < -math.log(0.1) < found.high
    assert found == bootstrap(sample, percentile(90))
    assert bootstrap([], percentile(50)).size == 0
