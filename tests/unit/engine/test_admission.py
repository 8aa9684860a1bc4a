"""Admission: bounded queues, predicted first tokens, refusals with a cause and a computed wait."""

import pytest

from headway.core import Admitted, Arrived, Cause, Finished, FinishReason, Refusal, Request, StepRecord, Tier
from headway.engine.admission import Admission, AdmissionLimits
from headway.engine.guardrails import Guardrails, GuardSettings
from headway.errors import BadSetting, Overloaded


def ask(name, num_prompt=100, **fields):
    return Request(id=name, prompt_ids=tuple(range(num_prompt)), max_output=10, **fields)


def an_admission(**limits):
    limits = {"max_queued_requests": 0, **limits}
    return Admission(AdmissionLimits(**limits), 10_000, Guardrails(GuardSettings(), 100))


def measure(admission, tokens_per_s, seconds=30):
    """Let a long prompt be computed at that speed, so that the rate is known."""
    admission.backlog.add(ask("measured", tokens_per_s * seconds))
    admission.backlog.on_events([Admitted("measured", "measured", 0, is_first=True, at_s=0.0)])
    for second in range(seconds):
        record = StepRecord(second, float(second), grants={"measured": tokens_per_s}, end_s=second + 1.0)
        admission.backlog.on_events([record])
    request = ask("measured")
    admission.backlog.on_events([Finished(request, FinishReason.LENGTH, 1, 0, float(seconds))])


def refused(admission, request, now_s=0.0):
    with pytest.raises(Overloaded) as caught:
        admission.admit(request, now_s)
    return caught.value


def test_a_full_queue_refuses_with_its_cause():
    """The third of two that may wait is refused, and counted; one that was begun makes room."""
    admission = an_admission(max_queued_requests=2)
    admission.admit(ask("a"), 0.0)
    admission.admit(ask("b"), 0.0)
    assert refused(admission, ask("c")).cause == "queue_full"
    admission.backlog.on_events([Admitted("a", "a", 0, is_first=True, at_s=1.0)])
    admission.admit(ask("c"), 1.0)
    assert admission.refused == {Cause.QUEUE_FULL: 1}


def test_whoever_records_hears_of_those_turned_away():
    """What was asked for, when, and why not; nothing of those let in."""
    admission, heard = an_admission(max_queued_requests=1), []
    admission.on_refusal = heard.append
    admission.admit(ask("a", tenant="t"), 0.0)
    refused(admission, ask("b", num_prompt=7, tenant="t", priority=2), now_s=3.0)
    assert heard == [
        Refusal(at_s=3.0, num_prompt=7, max_output=10, cause=Cause.QUEUE_FULL, tenant="t", priority=2, choices=1)
    ]


def test_an_empty_engine_tries_what_it_once_was_too_slow_for():
    """The rate of a five-token prompt says nothing of a long one, and would never be measured anew."""
    admission = an_admission()
    measure(admission, tokens_per_s=5)
    admission.admit(ask("first", ttft_s=2.0, arrival_s=50.0), 50.0)
    assert refused(admission, ask("second", ttft_s=2.0, arrival_s=50.0), 50.0).cause == "deadline"
    late = an_admission()
    assert refused(late, ask("late", ttft_s=2.0, arrival_s=50.0), 53.0).cause == "deadline"


def test_an_empty_engine_holds_nobody_back_for_promises():
    """Without steps no level would ever fall: where all traffic is long or batch work it would be shut out for ever."""
    guardrails = Guardrails(GuardSettings(slo={"kv_cache_utilization_max": 0.5}, long_tokens=50), 100)
    guardrails.on_events([StepRecord(0, 0.0, free_blocks=1, end_s=1.0)])
    assert guardrails.level == 1
    admission = Admission(AdmissionLimits(max_queued_requests=0), 10_000, guardrails)
    admission.admit(ask("long"), 1e6)
    assert refused(admission, ask("second"), 1e6).cause == "slo"
    admission.admit(ask("short", num_prompt=10), 1e6)
    for name in ("long", "short"):
        admission.backlog.on_events([Finished(ask(name), FinishReason.LENGTH, 1, 0, 1e6)])
    admission.admit(ask("batch", tier=Tier.FLEX), 1e6)


def test_tokens_bound_the_queue_and_the_wait_is_computed():
    """At 50 tokens a second, 250 tokens above the bound take 5 s; a single long prompt is let into an empty queue."""
    admission = an_admission(max_queued_tokens=200)
    measure(admission, 50)
    admission.admit(ask("long", 350), 0.0)
    error = refused(admission, ask("next", 100))
    assert (error.cause, error.retry_after_s) == ("tokens", pytest.approx(5.0))


def test_memory_bounds_the_queue():
    """Half a pool of 10,000 tokens may wait."""
    admission = an_admission(max_queued_kv=0.5)
    admission.admit(ask("a", 4000), 0.0)
    assert refused(admission, ask("b", 2000)).cause == "kv"


def test_concurrency_counts_until_a_request_ends():
    """One at a time, whether it waits or runs."""
    admission = an_admission(max_concurrent_requests=1)
    first = ask("a")
    admission.admit(first, 0.0)
    admission.backlog.on_events([Admitted("a", "a", 0, is_first=True, at_s=1.0)])
    assert refused(admission, ask("b")).cause == "concurrency"
    admission.backlog.on_events([Finished(first, FinishReason.STOP, 1, 0, 2.0)])
    admission.admit(ask("b"), 2.0)


def test_the_first_token_is_predicted_from_the_backlog_and_the_rate():
    """300 tokens wait and 100 are its own: 4 s at 100 a second. Without measurements nothing is predicted."""
    admission = an_admission()
    assert admission.admit(ask("early"), 0.0) is None
    admission.backlog.on_events([Finished(ask("early"), FinishReason.ABORT, 0, 0, 0.0)])
    measure(admission, 100)
    admission.admit(ask("a", 300), 0.0)
    assert admission.admit(ask("b", 100), 0.0) == pytest.approx(4.0)


def test_a_late_first_token_is_refused_until_there_is_room_again():
    """With a limit of 2 s and 4 s predicted: 2 s until it is kept, and three quarters of the limit for some room."""
    admission = an_admission(ttft_limit_ms=2000)
    measure(admission, 100)
    admission.admit(ask("a", 300), 0.0)
    error = refused(admission, ask("b", 100))
    assert (error.cause, error.retry_after_s) == ("slo", pytest.approx(3.5))


def in_a_lull():
    """A backlog that would let everybody in again, a second after somebody was told to come back in 3.5."""
    admission = an_admission(ttft_limit_ms=2000)
    measure(admission, 100)
    admission.admit(ask("a", 300), 0.0)
    refused(admission, ask("b", 100))
    admission.backlog.on_events([StepRecord(0, 0.0, grants={"a": 250}, end_s=1.0)])
    return admission


def test_until_the_time_that_was_said_nobody_takes_the_place():
    """Others like it, and longer ones, are told what is left of the time; then everybody is let in."""
    admission = in_a_lull()
    assert refused(admission, ask("c", 100), 1.0).retry_after_s == pytest.approx(2.5)
    assert refused(admission, ask("d", 150), 2.0).retry_after_s == pytest.approx(1.5)
    admission.admit(ask("e", 100), 3.6)


def test_a_lull_is_for_those_who_would_be_late():
    """Much shorter prompts, other classes and other tenants are let in as far as their own prediction goes."""
    for other in (ask("c", 10), ask("c", 100, tier=Tier.PRIORITY), ask("c", 100, tenant="other")):
        in_a_lull().admit(other, 1.0)


def test_a_lull_ends_with_the_backlog():
    """The backlog was computed sooner than predicted: nobody waits for nothing."""
    admission = in_a_lull()
    admission.backlog.on_events([StepRecord(1, 1.0, grants={"a": 50}, end_s=1.5)])
    admission.admit(ask("c", 100), 1.5)


def test_a_deadline_that_cannot_be_met_is_refused_at_once():
    """Neither the whole answer's nor the first token's; one that can be met is let in."""
    admission = an_admission()
    measure(admission, 100)
    admission.admit(ask("a", 300), 0.0)
    assert refused(admission, ask("b", 100, deadline_s=3.0)).cause == "deadline"
    assert refused(admission, ask("c", 100, ttft_s=3.0)).cause == "deadline"
    assert refused(admission, ask("d", 100, deadline_s=-1.0)).cause == "deadline"
    admission.admit(ask("e", 100, ttft_s=5.0, deadline_s=9.0), 0.0)


def test_a_class_waits_only_for_those_before_it():
    """Under a policy with tiers, batch work in the queue does not delay others; it waits for everybody."""
    admission = an_admission()
    admission.backlog.has_tiers = True
    measure(admission, 100)
    admission.admit(ask("batch", 900, tier=Tier.FLEX), 0.0)
    assert admission.admit(ask("a", 100), 0.0) == pytest.approx(1.0)
    assert admission.admit(ask("b", 100, tier=Tier.FLEX), 0.0) == pytest.approx(11.0)


def test_a_fair_queue_is_full_for_those_who_fill_it():
    """The big tenant is refused at the bound, the small one gets in, up to its share, and its wait is its own."""
    admission = an_admission(max_queued_requests=4)
    admission.backlog.is_fair = True
    measure(admission, 100)
    for at in range(4):
        admission.admit(ask(f"big{at}", 1000, tenant="big"), 0.0)
    assert refused(admission, ask("big9", 1000, tenant="big")).cause == "queue_full"
    assert admission.admit(ask("s0", 100, tenant="small"), 0.0) == pytest.approx(2.0)
    admission.admit(ask("s1", 100, tenant="small"), 0.0)
    assert refused(admission, ask("s2", 100, tenant="small")).cause == "queue_full"


def test_cached_tokens_are_progress():
    """A prompt found in the cache leaves the backlog with what is computed of it."""
    admission = an_admission()
    request = ask("a", 100)
    admission.admit(request, 0.0)
    admission.backlog.on_events([Arrived(request, 0.0), Admitted("a", "a", 90, is_first=True, at_s=1.0)])
    admission.backlog.on_events([StepRecord(0, 1.0, grants={"a": 10}, end_s=2.0)])
    assert admission.backlog.queued().num_requests == 0
    assert admission.backlog.token_rate(Tier.DEFAULT) == pytest.approx(100.0)


@pytest.mark.parametrize("field", ["max_queued_requests", "ttft_limit_ms", "queue_timeout_ms"])
@pytest.mark.parametrize("value", [-1, True, "3", float("nan"), float("inf")])
def test_limits_are_checked(field, value):
    """Each is a number from 0; the message names it."""
    with pytest.raises(BadSetting, match=field):
        AdmissionLimits(**{field: value})
