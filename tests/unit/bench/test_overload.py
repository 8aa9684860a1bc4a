from dataclasses import replace

import pytest

from headway.bench import Call, Closing, Opened, Refused
from headway.bench.overload import OverloadLoad, Probe, share_within, sustained
from headway.report import Outcome, RequestRecord, RunRecord
from tests.support.virtual_loop import run_virtual


def answered(at_s, ttft_s, outcome=Outcome.OK):
    return RequestRecord(
        id=str(at_s),
        intended_s=at_s,
        outcome=outcome,
        num_prompt=4,
        num_output=2,
        sent_s=at_s,
        first_s=at_s + ttft_s,
        last_s=at_s + ttft_s,
        closed_s=at_s + ttft_s,
    )


def test_goodput_counts_whole_answers_in_time():
    """Late ones, and those that came to nothing, are no goodput."""
    load = OverloadLoad(duration_s=10.0, ttft_s=1.0)
    records = [answered(1, 0.5), answered(2, 1.0), answered(3, 1.5), answered(4, 0.1, Outcome.REFUSED)]
    assert load.goodput(RunRecord(requests=records, duration_s=10.0, label="x")) == pytest.approx(0.2)


def test_capacity_is_what_came_until_the_time_was_over():
    """A prompt of 4 counts with its first token, an answer of 2 by its part; what came later does not count."""
    load = OverloadLoad(duration_s=10.0, num_prompt=4, num_output=2)
    records = [*(answered(at, 0.0) for at in (1, 2, 5, 10, 11)), replace(answered(9, 0.0), last_s=11.0)]
    made = sustained(RunRecord(requests=records, duration_s=12.0, label="x"), load)
    assert made == pytest.approx((3 * (4 + 2) + 4 + 1) / 10 / (4 + 2))


def test_arrivals_have_their_rate():
    """Three times as many in the same time."""
    load = OverloadLoad(duration_s=5000.0)
    assert len(load.at_rate(3.0)) / 5000 == pytest.approx(3.0, rel=0.05)


def test_a_promise_is_held_to_its_truth():
    """Within a factor of two either way; whole seconds are as fine as it gets."""
    assert share_within([]) is None
    assert share_within([(4.0, 2.0), (1.0, 2.0), (4.0, 1.9), (1.0, 2.1), (1.0, 0.01)]) == pytest.approx(3 / 5)


class Door:
    """Refuses some attempts, and opens at the others."""

    def __init__(self, clock, refused):
        self._clock, self._refused, self._number = clock, refused, -1

    async def stream(self, call):
        self._number += 1
        if self._number in self._refused:
            raise Refused("full", status=503, retry_after_s=3.0)
        yield Opened(self._clock.now())
        yield Closing(at_s=self._clock.now())


def test_a_probe_asks_again_until_it_is_let_in():
    """What it was told first, and when it was let in, counted from the refusal."""

    async def main(clock):
        probe = Probe(Door(clock, range(2, 8)), clock, Call(id="probe", prompt="x", num_prompt=1, num_output=1))
        await probe.run(until_s=20.0)
        return probe.pairs

    [(promised_s, truth_s)] = run_virtual(main)
    assert promised_s == 3.0
    assert truth_s == pytest.approx(1.0)
