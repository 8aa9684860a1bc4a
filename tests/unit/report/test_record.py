"""What one request's record says of it."""

import pytest

from headway.core import Slo
from headway.report import Outcome
from tests.unit.report.runs import TIGHT, refused, request


def test_latencies_count_from_the_intended_time():
    """A request that waited in its client is as late as its user saw it; the blind number stands beside."""
    late = request(10.0, ttft_s=2.0, delay_s=1.5)
    assert (late.ttft_s, late.ttft_since_sent_s, late.lateness_s) == pytest.approx((2.0, 0.5, 1.5))
    assert late.e2e_s == pytest.approx(2.1)


def test_tpot_needs_two_tokens():
    """(last − first) ÷ (n − 1), and nothing for a single token."""
    assert request(gap_s=0.03, num_output=5).tpot_s == pytest.approx(0.03)
    assert request(num_output=1).tpot_s is None


@pytest.mark.parametrize(
    ("record", "met"),
    [
        (request(slo=TIGHT), True),
        (request(slo=TIGHT, ttft_s=0.21), False),
        (request(slo=TIGHT, gap_s=0.021), False),
        (request(slo=TIGHT, num_output=95), False),
        (request(slo=TIGHT, num_output=1), True),
        (request(deadline_s=0.19), False),
        (request(deadline_s=0.21), True),
        (request(), None),
        (refused(slo=TIGHT), False),
        (request(slo=TIGHT, outcome=Outcome.FAILED), False),
        (request(slo=TIGHT, outcome=Outcome.CANCELLED), None),
        (request(slo=TIGHT, outcome=Outcome.CANCELLED, ttft_s=0.3), False),
        (request(slo=TIGHT, outcome=Outcome.CANCELLED, num_output=0, closed_s=0.5), False),
        (request(slo=Slo(tpot_s=1), outcome=Outcome.CANCELLED, num_output=0, closed_s=0.5), None),
    ],
)
def test_promises(record, met):
    """All limits must hold; refused and failed missed them, and a client that gave up is judged by its first token."""
    assert record.meets_slo() is met
