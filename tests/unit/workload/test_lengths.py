"""Length laws: their moments, their bounds, and pairs."""

import math

import numpy as np
import pytest

from headway.errors import BadSetting
from headway.workload import (
    Clamped,
    Empirical,
    Fixed,
    LogNormal,
    Normal,
    Quantiles,
    Scaled,
    Truncated,
    Uniform,
    Zipf,
    parse_workload,
    stream,
)
from headway.workload.pairs import Alongside, Independent, Recorded

SIZE = 50_000


def draw(law, size=SIZE):
    return law.draw(stream(11, "test"), size)


@pytest.mark.parametrize(
    ("law", "mean", "std"),
    [
        (Fixed(value=7), 7, 0),
        (Uniform(low=10, high=20), 15, math.sqrt((11**2 - 1) / 12)),
        (Normal(mean=500, std=50), 500, 50),
        (LogNormal(mean=600, cv=1.2), 600, 720),
        (Empirical(values=[1, 2, 9]), 4, math.sqrt(38 / 3)),
        (Quantiles(levels=[0, 1], values=[100, 300]), 200, 200 / math.sqrt(12)),
        (Scaled(law=Fixed(value=10), factor=2.5), 25, 0),
    ],
)
def test_moments(law, mean, std):
    """Mean and deviation are those asked for, within sampling error."""
    values = draw(law)
    assert values.mean() == pytest.approx(mean, rel=0.03)
    assert values.std() == pytest.approx(std, rel=0.06, abs=1e-9)
    assert values.min() >= 1


def test_zipf_follows_its_power():
    """The probability of k is proportional to k to the minus exponent, borders included."""
    values = draw(Zipf(exponent=1.0, low=1, high=4))
    weights = 1 / np.arange(1, 5)
    shares = np.bincount(values, minlength=5)[1:] / SIZE
    assert shares == pytest.approx(weights / weights.sum(), rel=0.05)


def test_truncation_redraws_and_clamping_piles_up():
    """Truncated leaves no pile at the border, clamped does; neither leaves the bounds."""
    law = Normal(mean=100, std=50)
    truncated, clamped = draw(Truncated(law=law, low=80, high=120)), draw(Clamped(law=law, low=80, high=120))
    assert (truncated.min(), truncated.max(), clamped.min(), clamped.max()) == (80, 120, 80, 120)
    assert (truncated == 80).mean() < 0.04
    assert (clamped == 80).mean() == pytest.approx(0.345, abs=0.02)


def test_hopeless_bounds_are_refused():
    """A law that never falls inside its bounds ends in a message, not in an endless loop."""
    with pytest.raises(BadSetting, match="hardly ever falls between 500 and 600"):
        draw(Truncated(law=Fixed(value=1), low=500, high=600), 4)


def take(pairs, count, seed=3):
    drawn = pairs.pairs(stream(seed, "pairs"))
    return [next(drawn) for _ in range(count)]


def test_recorded_pairs_keep_their_correlation_and_shuffled_ones_lose_it():
    """Drawn rows come together; shuffled ones keep both laws but not their link."""
    prompts, outputs = list(range(1, 101)), list(range(1001, 1101))
    together = take(Recorded(prompts=prompts, outputs=outputs), 2000)
    apart = take(Recorded(prompts=prompts, outputs=outputs, order="shuffled"), 2000)
    assert all(output == prompt + 1000 for prompt, output in together)
    assert abs(np.corrcoef(np.array(apart).T)[0, 1]) < 0.1


def test_recorded_order_goes_round():
    """In recorded order the rows come in turn, and start over; scales apply."""
    pairs = Recorded(prompts=[10, 20, 30], outputs=[1, 2, 3], order="recorded", prompt_scale=0.5, output_scale=3)
    assert take(pairs, 5) == [(5, 3), (10, 6), (15, 9), (5, 3), (10, 6)]


def test_changing_the_output_law_leaves_the_prompts_alone():
    """Each law has its own stream."""
    prompt = LogNormal(mean=300, cv=1)
    one = take(Independent(prompt=prompt, output=Fixed(value=3)), 300)
    two = take(Independent(prompt=prompt, output=Uniform(low=1, high=99)), 300)
    assert [first for first, _ in one] == [first for first, _ in two]


def test_alongside_keeps_the_prompts_in_order():
    """Given prompts come in turn, with outputs drawn for each."""
    assert take(Alongside(prompts=[4, 5], output=Fixed(value=9)), 3) == [(4, 9), (5, 9), (4, 9)]


@pytest.mark.parametrize(
    ("text", "lengths"), [("empirical:values=10/20/30", {10, 20, 30}), ("empirical:values=7", {7})]
)
def test_a_list_of_lengths_fits_into_a_flag(text, lengths):
    """Commas part the fields of a law, so that slashes part its values."""
    spec = {"num_requests": 60, "arrivals": "at_once", "lengths": {"prompt": text, "output": 1}}
    assert {item.num_prompt for item in parse_workload(spec).items()} == lengths


@pytest.mark.parametrize("values", ["10/x", "10//20", "", "0/5", True, "10/\u00b2"])
def test_what_is_no_list_of_lengths_is_told_how_to_write_one(values):
    """The message has an example for a flag."""
    prompt = {"law": "empirical", "values": values}
    with pytest.raises(BadSetting, match="such as 10/20/30"):
        parse_workload({"num_requests": 1, "arrivals": "at_once", "lengths": {"prompt": prompt, "output": 1}})
