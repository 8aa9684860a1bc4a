"""Arrival processes: mean and variance of their gaps, and no gap is ever clipped."""

import itertools
import math

import numpy as np
import pytest

from headway.workload import AtOnce, Constant, Gamma, OnOff, Poisson, Ramp, Replay, Weibull, stream
from headway.workload.arrivals import weibull_shape

NUM_GAPS = 40_000


def gaps_of(process, num_gaps=NUM_GAPS, seed=7):
    moments = np.fromiter(itertools.islice(process.times(stream(seed, "test")), num_gaps), np.float64)
    return np.diff(moments, prepend=0.0)


@pytest.mark.parametrize(
    ("process", "rate", "cv"),
    [
        (Poisson(rate=5), 5, 1.0),
        (Constant(rate=4), 4, 0.0),
        (Gamma(rate=5, cv=0.5), 5, 0.5),
        (Gamma(rate=5, cv=3), 5, 3.0),
        (Weibull(rate=2, cv=0.4), 2, 0.4),
        (Weibull(rate=2, cv=2), 2, 2.0),
    ],
)
def test_gaps_have_the_mean_and_variation_asked_for(process, rate, cv):
    """The mean gap is 1/rate and deviation ÷ mean is the CV, within sampling error."""
    gaps = gaps_of(process)
    assert gaps.mean() == pytest.approx(1 / rate, rel=0.005 + 5 * cv / math.sqrt(NUM_GAPS))
    assert gaps.std() / gaps.mean() == pytest.approx(cv, rel=0.08, abs=1e-6)


def test_poisson_gaps_are_never_clipped():
    """A share e⁻³ of the gaps is longer than three means: a cut there would raise the load by 5 %."""
    gaps = gaps_of(Poisson(rate=1))
    assert (gaps > 3).mean() == pytest.approx(math.exp(-3), rel=0.1)
    assert (gaps > 6).mean() == pytest.approx(math.exp(-6), rel=0.4)


@pytest.mark.parametrize("cv", [0.02, 0.5, 1.0, 3.0, 30.0])
def test_weibull_shape_inverts_the_cv(cv):
    """The shape found gives back the CV, by the law's own moments."""
    shape = weibull_shape(cv)
    square = math.exp(math.lgamma(1 + 2 / shape) - 2 * math.lgamma(1 + 1 / shape)) - 1
    assert math.sqrt(square) == pytest.approx(cv, rel=1e-6)


@pytest.mark.parametrize("phases", ["exponential", "fixed"])
def test_bursts_have_their_own_rates(phases):
    """The long-run rate is the mean of both phases', and counts vary more than Poisson's."""
    process = OnOff(on_rate=20, on_s=2, off_s=6, off_rate=1, phases=phases)
    horizon_s = 40_000
    moments = np.fromiter(itertools.takewhile(lambda t: t < horizon_s, process.times(stream(3, "x"))), np.float64)
    assert len(moments) / horizon_s == pytest.approx((20 * 2 + 1 * 6) / 8, rel=0.05)
    counts = np.histogram(moments, np.arange(0, horizon_s, 4))[0]
    assert counts.var() / counts.mean() > 3
    assert (np.diff(moments) >= 0).all()


@pytest.mark.parametrize("shape", ["linear", "exponential"])
@pytest.mark.parametrize(("start", "end"), [(2.0, 40.0), (40.0, 2.0), (8.0, 8.0)])
def test_a_ramp_has_the_rate_of_its_moment(shape, start, end):
    """Arrivals in the first and second half of the ramp, and behind it, are as many as the rate's integral says."""
    ramp_s = 1000.0
    process = Ramp(start_rate=start, end_rate=end, ramp_s=ramp_s, shape=shape)
    moments = np.fromiter(itertools.takewhile(lambda t: t < 2000, process.times(stream(5, "x"))), np.float64)
    grid = np.linspace(0, ramp_s, 20_001)
    rate = start + (end - start) * grid / ramp_s if shape == "linear" else start * (end / start) ** (grid / ramp_s)
    for low, high in ((0, 500), (500, 1000)):
        part = (grid >= low) & (grid <= high)
        expected = float(np.trapezoid(rate[part], grid[part]))
        assert ((moments >= low) & (moments < high)).sum() == pytest.approx(expected, abs=5 * math.sqrt(expected))
    assert (moments >= 1000).sum() == pytest.approx(end * 1000, abs=5 * math.sqrt(end * 1000))


def test_a_ramp_to_zero_ends():
    """A rate that falls to zero stops for good, after half of start × duration arrivals on average."""
    moments = list(Ramp(start_rate=10, end_rate=0, ramp_s=400).times(stream(1, "x")))
    assert len(moments) == pytest.approx(2000, abs=5 * math.sqrt(2000))
    assert max(moments) <= 400


def test_a_constant_rate_does_not_drift():
    """The millionth arrival stands where a million gaps end, without added-up rounding."""
    assert next(itertools.islice(Constant(rate=3).times(stream(0)), 999_999, None)) == 1_000_000 / 3


def test_replay_keeps_the_trace_s_gaps_scales_and_repeats():
    """Times count from the first arrival; a repetition starts one mean gap after the last."""
    assert list(Replay(moments_s=[5, 6, 8]).times(stream(0))) == [0, 1, 3]
    assert list(Replay(moments_s=[5, 6, 8], time_scale=2).times(stream(0))) == [0, 2, 6]
    assert list(Replay(moments_s=[5, 6, 8], repeats=2).times(stream(0))) == [0, 1, 3, 4.5, 5.5, 7.5]


def test_at_once_is_all_at_zero():
    """Everything comes at the start."""
    assert list(itertools.islice(AtOnce().times(stream(0)), 3)) == [0, 0, 0]


def test_streams_of_different_names_are_unrelated_and_each_is_repeatable():
    """One seed and name give one stream; another name or seed another."""
    first, again, other = (stream(1, *name).random(4).tolist() for name in (("a",), ("a",), ("b",)))
    assert first == again != other
    assert stream(2, "a").random(4).tolist() != first
