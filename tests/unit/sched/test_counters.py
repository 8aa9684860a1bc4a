"""What a tenant is charged for."""

import pytest

from headway.core import Admitted, Arrived, Finished, FinishReason, Preempted, PreemptMethod, Request, TokenEmitted
from headway.sched.parts import VirtualCounters


@pytest.mark.parametrize(("cost", "charged"), [(0.0, 0.0), (1.0, 7.0)])
def test_what_is_computed_again_is_charged_when_it_comes_back(cost, charged):
    """A prompt of 6 with two tokens out has 7 computed tokens; by swap none of them is computed again."""
    counters = VirtualCounters(recompute_cost=cost)
    request = Request(id="x", prompt_ids=(1,) * 6, max_output=9, tenant="a", weight=0.5)

    def hear(*events):
        for event in events:
            counters.on_event(event)
        return counters.of("a") * request.weight

    hear(Arrived(request, 0.0), Admitted("x", "x", 0, is_first=True, at_s=0.0))
    before = hear(*(TokenEmitted("x", "x", 0, at, 7, 1.0) for at in range(2)))
    assert before == 6 + 2 * 2
    hear(Preempted("x", "x", PreemptMethod.RECOMPUTE, 2.0))
    assert hear(Admitted("x", "x", 0, is_first=False, at_s=3.0)) == before + charged
    hear(Preempted("x", "x", PreemptMethod.RECOMPUTE, 4.0))
    after = hear(Admitted("x", "x", 4, is_first=False, at_s=5.0))
    assert after == before + charged + cost * 3
    assert hear(Finished(request, FinishReason.STOP, 2, 0, 6.0)) == after
