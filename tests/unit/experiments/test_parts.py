"""What experiments are made of: verdicts, demands that differ in rate alone, the search for a highest rate."""

from statistics import fmean

import pytest

from headway.errors import BadSetting
from headway.experiments import EXPERIMENTS, Finding, Ratio, Verdict, experiment, papers_document
from headway.experiments.demand import LogNormal, demand, log_normal, sample, uniform
from headway.experiments.fairness import fluid_wait
from headway.experiments.probing import RateCurve
from headway.report import Chart, Series


@pytest.mark.parametrize(
    ("ours", "paper", "verdict"),
    [
        (2.0, (1.7, 2.7), Verdict.AS_PUBLISHED),
        (1.6, (1.7, 2.7), Verdict.SMALLER),
        (2.8, (1.7, 2.7), Verdict.LARGER),
        (30.0, (36.9, 36.9), Verdict.AS_PUBLISHED),
        (29.0, (36.9, 36.9), Verdict.SMALLER),
        (47.0, (36.9, 36.9), Verdict.LARGER),
        (1.0, None, Verdict.NO_FIGURE),
    ],
)
def test_a_verdict_is_strict_about_ranges_and_allows_a_quarter_for_single_figures(ours, paper, verdict):
    """The range itself, or 25 % around the one figure."""
    assert Ratio(name="r", ours=ours, paper=paper).verdict is verdict


def test_rates_change_times_and_nothing_else():
    """Twice the rate halves every arrival; lengths stay."""
    asked = demand(uniform(50, (32, 512), (1, 128)))
    slow, fast = asked.items(1.0), asked.items(2.0)
    assert [item.at_s for item in slow] == pytest.approx([2 * item.at_s for item in fast])
    assert [(item.num_prompt, item.num_output) for item in slow] == asked.lengths
    assert fmean(asked.gaps) == pytest.approx(1.0, rel=0.5)


def test_log_normal_lengths_have_their_median_and_bounds():
    """The median within 10 % of 2000 draws, none above the most."""
    lengths = log_normal(2000, LogNormal(100, 300, 500), LogNormal(10, 20, 1000))
    prompts = sorted(prompt for prompt, _ in lengths)
    assert prompts[1000] == pytest.approx(100, rel=0.1)
    assert prompts[-1] <= 500


def test_samples_of_traces_are_shipped():
    """512 rows of each, without the shared data."""
    for trace in ("azure_conv", "sharegpt_8k", "arxiv_4k"):
        rows = sample(trace)
        assert len(rows) == 512
        assert all(prompt > 0 and output > 0 for prompt, output in rows)


@pytest.mark.parametrize("start", [0.1, 3.0, 100.0])
def test_the_highest_rate_is_found_from_any_start(start):
    """Within the precision, from below; every rate is measured once."""
    seen = []

    def measure(rate):
        seen.append(rate)
        return rate**2

    found = RateCurve("c", measure).highest(49.0, start)
    assert 7.0 / 1.06 <= found <= 7.0
    assert len(seen) == len(set(seen))


def test_a_limit_that_no_rate_meets_gives_zero():
    """And the search ends."""
    assert RateCurve("c", lambda _rate: 1.0).highest(0.5, 1.0) == 0.0


def test_the_search_ends_where_every_rate_meets_the_limit():
    """At 2⁸ times the start."""
    assert RateCurve("c", lambda _rate: 1.0).highest(2.0, 1.0) == 256.0


def test_the_fluid_model_of_fair_shares():
    """540 requests at half of 1.744 a second take 619 s; those of 360 s wait 129.6 s on average."""
    assert 360 * fluid_wait(1.744, 1.5) == pytest.approx(129.6, abs=0.1)


def test_unknown_experiments_are_named_with_a_hint():
    """The known names, and the nearest."""
    with pytest.raises(BadSetting, match=r"'orka' \(did you mean 'orca'\?\); known: static, orca"):
        experiment("orka")


def test_every_experiment_can_be_loaded():
    """Each module has a `reproduce`."""
    assert all(callable(experiment(name)) for name in EXPERIMENTS)


def test_the_document_gives_a_reason_for_each_ratio_that_does_not_come_out():
    """A ratio as published needs none."""
    chart = Chart(title="t", x_label="x", y_label="y", series=[Series(name="s", x=[1], y=[1])])
    ratios = [
        Ratio(name="good", ours=2.0, paper=(2.0, 2.0), why="unused"),
        Ratio(name="bad", ours=9.0, paper=(2.0, 2.0), why="the engine was slower"),
        Ratio(name="odd", ours=9.0, paper=(2.0, 2.0)),
    ]
    finding = Finding(name="x", title="T", source="S", setup="how", ratios=ratios, chart=chart)
    text = papers_document([finding])
    assert "- **bad**: the engine was slower" in text
    assert "- **odd**: does not come out, and we do not know why" in text
    assert "**good**" not in text
    assert "![t](figures/x.svg)" in text
