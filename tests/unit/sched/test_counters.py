"""What a tenant is charged for."""

import pytest

from headway.core import (
    Admitted,
    Arrived,
    Finished,
    FinishReason,
    Preempted,
    PreemptMethod,
    Request,
    StepRecord,
    TokenEmitted,
)
from headway.sched.parts import ReceivedCounters, VirtualCounters


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


@pytest.mark.parametrize(("make", "floor"), [(ReceivedCounters, 30.0), (VirtualCounters, 100.0)])
def test_who_comes_back_is_lifted_to_what_the_others_have_got_or_were_charged(make, floor):
    """Of a prompt of 100 that was begun 30 tokens are computed. VTC lifts a newcomer to the counter (§15)."""

    def asked(name, tenant):
        return Arrived(Request(id=name, prompt_ids=(1,) * 100, max_output=1, tenant=tenant), 0.0)

    counters = make()
    for event in (asked("x", "big"), asked("y", "big"), Admitted("x", "x", 0, is_first=True, at_s=0.0)):
        counters.on_event(event)
    counters.on_event(StepRecord(0, 0.0, grants={"x": 30}, end_s=1.0))
    counters.on_event(asked("a", "early"))
    counters.on_event(StepRecord(1, 1.0, grants={"x": 70}, end_s=2.0))
    counters.on_event(asked("b", "late"))
    assert [counters.of(tenant) for tenant in ("big", "early", "late")] == [100.0, floor, floor]
    counters.on_event(
        Finished(Request(id="a", prompt_ids=(1,), max_output=1, tenant="early"), FinishReason.ABORT, 0, 0, 2)
    )
    counters.on_event(asked("c", "later"))
    assert counters.of("later") == floor
