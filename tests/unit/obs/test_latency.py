import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.core import (
    Admitted,
    Arrived,
    Finished,
    FinishReason,
    Preempted,
    PreemptMethod,
    Rejected,
    Request,
    SamplingParams,
    TokenEmitted,
)
from headway.obs import LatencyTracker


class Watch:
    """A tracker with what it told, in lists."""

    def __init__(self):
        self.scheduled, self.first, self.gaps, self.ended = [], [], [], []
        self.tracker = LatencyTracker(
            on_scheduled=self.scheduled.append,
            on_first=lambda life: self.first.append(life.ttft_s),
            on_gap=self.gaps.append,
            on_end=self.ended.append,
        )

    def hear(self, *events):
        for event in events:
            self.tracker.on_event(event)


def request(name="r", n=1, arrival_s=10.0):
    return Request(id=name, prompt_ids=(1, 2), max_output=9, arrival_s=arrival_s, params=SamplingParams(n=n))


def token(at_s, index=0, choice=0, name="r"):
    return TokenEmitted(f"{name}/{choice}", name, choice, index, 7, at_s)


def admitted(at_s, num_cached=0, *, is_first=True, name="r"):
    return Admitted(name, name, num_cached, is_first, at_s)


def test_intervals_follow_their_formulas():
    """Queue s − a, prefill t₁ − s, decode tₙ − t₁, TTFT t₁ − a, E2E tₙ − a, TPOT over n − 1 gaps."""
    watch = Watch()
    ask = request()
    watch.hear(Arrived(ask, 10.5), admitted(11.0, 3), token(13.0), token(14.0, 1), token(17.0, 2))
    watch.hear(Finished(ask, FinishReason.LENGTH, 3, 3, 17.0))
    (life,) = watch.ended
    assert (life.queue_s, life.prefill_s, life.decode_s) == (1.0, 2.0, 4.0)
    assert (life.ttft_s, life.inference_s, life.e2e_s, life.tpot_s) == (3.0, 6.0, 7.0, 2.0)
    assert (life.num_output, life.num_cached, life.reason) == (3, 3, FinishReason.LENGTH)
    assert (watch.first, watch.gaps) == ([3.0], [1.0, 3.0])
    assert watch.tracker.num_live == 0


def test_a_preemption_is_a_long_gap_and_no_queue_time():
    """PUBLIC_ISSUES 8.3: what happens after the first schedule does not move it."""
    watch = Watch()
    ask = request()
    watch.hear(Arrived(ask, 10.0), admitted(11.0), token(12.0))
    watch.hear(Preempted("r", "r", PreemptMethod.RECOMPUTE, 12.5), admitted(19.0, 2, is_first=False), token(20.0, 1))
    watch.hear(Finished(ask, FinishReason.STOP, 2, 0, 20.0))
    (life,) = watch.ended
    assert (life.queue_s, life.prefill_s, life.decode_s, life.num_cached) == (1.0, 1.0, 8.0, 0)
    assert (watch.gaps, len(watch.scheduled)) == ([8.0], 1)


def test_choices_have_their_own_gaps_and_share_the_rest():
    """With n = 2 the first token of either is the request's first; TPOT is all decode time over all gaps."""
    watch = Watch()
    ask = request(n=2)
    watch.hear(Arrived(ask, 10.0), admitted(10.0), token(11.0), token(11.0, 0, 1), token(13.0, 1), token(12.0, 1, 1))
    watch.hear(Finished(ask, FinishReason.STOP, 4, 0, 13.0))
    (life,) = watch.ended
    assert watch.first == [1.0]
    assert watch.gaps == [2.0, 1.0]
    assert (life.tpot_s, life.e2e_s, life.num_output) == (1.5, 3.0, 4)


def test_a_single_token_has_no_tpot():
    """n − 1 = 0 gaps: no value, rather than a zero or a division by it."""
    watch = Watch()
    ask = request()
    watch.hear(Arrived(ask, 10.0), admitted(10.0), token(11.0), Finished(ask, FinishReason.LENGTH, 1, 0, 11.0))
    assert watch.ended[0].tpot_s is None


def test_aborted_before_anything_happened():
    """Intervals that did not happen are None; the request is forgotten all the same."""
    watch = Watch()
    ask = request()
    watch.hear(Arrived(ask, 10.0), Finished(ask, FinishReason.ABORT, 0, 0, 12.0))
    (life,) = watch.ended
    assert {life.queue_s, life.prefill_s, life.decode_s, life.ttft_s, life.e2e_s, life.tpot_s} == {None}
    assert watch.tracker.num_live == 0


def test_rejected_requests_are_forgotten():
    """PUBLIC_ISSUES 12.10: every exit frees the record, and unknown requests leave none."""
    watch = Watch()
    ask = request()
    watch.hear(Arrived(ask, 10.0), Rejected(ask, "full", 11.0), token(12.0, name="stranger"), admitted(12.0, name="x"))
    watch.hear(Finished(request("late"), FinishReason.STOP, 1, 0, 12.0))
    assert watch.ended == []
    assert watch.tracker.num_live == 0


@given(
    st.floats(0, 100),
    st.lists(st.floats(0, 10), min_size=1, max_size=10),
)
def test_parts_add_up(queue_s, gaps):
    """PUBLIC_ISSUES 8.3: queue + prefill + decode = E2E, none negative, for any times that do not run backwards."""
    watch = Watch()
    ask = request()
    at_s = 10.0 + queue_s
    watch.hear(Arrived(ask, 10.0), admitted(at_s))
    for index, gap_s in enumerate(gaps):
        at_s += gap_s
        watch.hear(token(at_s, index))
    watch.hear(Finished(ask, FinishReason.STOP, len(gaps), 0, at_s))
    (life,) = watch.ended
    assert min(life.queue_s, life.prefill_s, life.decode_s) >= 0
    assert life.queue_s + life.prefill_s + life.decode_s == pytest.approx(life.e2e_s)
