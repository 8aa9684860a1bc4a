import asyncio

import pytest

from headway.bench.capacity import Search, find_capacity
from headway.errors import BadSetting


def search(attain, **fields):
    async def as_coroutine(rate, repeat):
        return attain(rate, repeat)

    return asyncio.run(find_capacity(as_coroutine, Search(**fields)))


@pytest.mark.parametrize("truth", [0.07, 0.9, 1.0, 3.3, 57.0])
def test_the_capacity_is_found_within_the_tolerance(truth):
    """A server that serves well up to a rate and badly beyond: that rate is found from below."""
    found = search(lambda rate, _: 1.0 if rate <= truth else 0.3, tolerance=0.05)
    assert found.is_complete
    assert found.rate <= truth < found.failed_rate
    assert found.failed_rate <= 1.05 * found.rate


def test_the_median_of_the_repeats_counts():
    """One bad run of three does not fail a rate."""
    found = search(lambda rate, repeat: 0.0 if repeat == 1 or rate > 4 else 0.95, repeats=3, max_rate=4.0)
    assert (found.rate, found.failed_rate) == (4.0, None)
    assert all(len(trial.attainments) == 3 for trial in found.trials)


def test_a_rate_above_one_that_failed_is_no_capacity():
    """Attainment need not fall steadily: what passes beyond a failure is luck."""
    found = search(lambda rate, _: 0.0 if 2 <= rate < 3 else 1.0, max_rate=64.0)
    assert found.rate < 2


def test_where_nothing_passes_the_capacity_is_zero():
    """The search halves a bounded number of times."""
    found = search(lambda *_: 0.0, max_rates=6, repeats=1)
    assert (found.rate, len(found.trials)) == (0.0, 6)


def test_an_interrupted_search_keeps_its_trials():
    """Ctrl-C in the middle of a run: the rates before it stay."""

    def attain(rate, repeat):
        if rate > 2:
            raise asyncio.CancelledError
        return 1.0

    found = search(attain, repeats=1)
    assert (found.is_complete, found.rate, len(found.trials)) == (False, 2.0, 2)


@pytest.mark.parametrize(
    "wrong", [{"goal": 0.0}, {"goal": 1.1}, {"start_rate": 0.0}, {"tolerance": 0.0}, {"repeats": 0}]
)
def test_what_cannot_be_searched_for_is_refused(wrong):
    """With value and limit."""
    with pytest.raises(BadSetting, match="must be"):
        Search(**wrong)
