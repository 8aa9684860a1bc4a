import asyncio
import itertools

import pytest

from headway.bench import Broken, Refused, Runner, RunPlan, Unauthorized, Unreachable
from headway.bench.client import INTERRUPTED
from headway.report import Outcome
from tests.support.scripted import PlainCalls, ScriptedTarget, end, item, steady, token
from tests.support.virtual_loop import run_virtual


def run(items, script, *, target=ScriptedTarget, stop_at=None, on_progress=None, how="run", **plan):
    """(run, target) of a scripted target in virtual time; `stop_at` interrupts it."""
    found = []

    async def go(clock):
        found.append(target(clock, script))
        runner = Runner(found[0], PlainCalls(), clock, RunPlan(items=lambda: items, **plan), on_progress=on_progress)
        task = asyncio.create_task(getattr(runner, how)())
        if stop_at is not None:
            await asyncio.sleep(stop_at)
            task.cancel()
        return await task

    return run_virtual(go), found[0]


def quick(call, number):
    return steady(call.num_output, first_s=0.1, gap_s=0.01)


def test_requests_leave_at_their_moments_whatever_the_server_does():
    """An open loop is open: a server that takes a minute for each request is sent the next one all the same."""
    items = [item(k, at_s=0.5 * k) for k in range(10)]
    record, target = run(items, lambda call, number: steady(3, first_s=60.0, gap_s=0.0))
    assert target.arrived_s == pytest.approx([0.5 * k for k in range(10)])
    assert target.most_in_flight == 10
    assert [request.ttft_s for request in record.requests] == pytest.approx([60.0] * 10)
    assert [request.lateness_s for request in record.requests] == pytest.approx([0.0] * 10)


class Uneven:
    """A loop's time at several paces, each from its second on; at pace 0 it stands still."""

    def __init__(self, loop, *paces):
        self.loop, self.paces = loop, paces
        self.begin_s = loop.time()

    def now(self):
        passed_s, now_s = self.loop.time() - self.begin_s, 0.0
        for (from_s, pace), (to_s, _) in itertools.pairwise([*self.paces, (float("inf"), 0.0)]):
            now_s += pace * max(0.0, min(passed_s, to_s) - from_s)
        return now_s


@pytest.mark.parametrize(
    "paces",
    [
        [(0.0, 1.0)],
        [(0.0, 0.3)],
        [(0.0, 7.0)],
        [(0.0, 1.0), (0.9, 0.0), (0.96, 1.4), (2.0, 0.0), (2.06, 0.6)],
        [(0.0, 0.0), (0.0035, 1.0)],
        [(0.0, 0.5), (2.0, 1.6)],
    ],
)
def test_requests_leave_at_their_moments_whatever_the_clocks_pace(paces):
    """Seconds may be longer or shorter than real ones, and the clock may stand still: nothing leaves late for that."""
    items = [item(k, at_s=0.7 * k) for k in range(6)]

    async def go(loop):
        clock = Uneven(loop, *paces)
        target = ScriptedTarget(clock, lambda call, number: steady(1, first_s=0.0, gap_s=0.0))
        return await Runner(target, PlainCalls(), clock, RunPlan(items=lambda: items)).run()

    for request in run_virtual(go).requests:
        assert -1e-7 < request.sent_s - request.intended_s < 0.005


def test_later_turns_wait_for_their_answer_and_think():
    """A session's next request is due when its user has read and thought."""
    items = [item(0, session="s"), item(1, session="s", at_s=None, turn=1, think_s=2.0), item(2, at_s=0.3)]
    record, target = run(items, quick)
    assert target.arrived_s == pytest.approx([0.0, 0.3, 0.12 + 2.0])
    assert [request.intended_s for request in record.requests] == pytest.approx([0.0, 0.3, 2.12])
    assert [request.ttft_s for request in record.requests] == pytest.approx([0.1] * 3)


def test_a_closed_loop_sends_nothing_after_its_time():
    """A user whose time is up asks nothing more; what is in flight is answered."""
    items = [item(k, session="u", at_s=None if k else 0.0, turn=k) for k in range(100)]
    record, _ = run(items, lambda *_: steady(2, first_s=1.0, gap_s=0.0), duration_s=4.5)
    assert len(record.requests) == 5
    assert all(request.is_ok for request in record.requests)


def test_outcomes_are_told_apart():
    """Whole, refused, failed and cancelled answers have their names and reasons."""
    ends = [
        quick(item(0), 0),
        [(0.1, Refused("full", status=429))],
        [(0.1, token()), (0.1, Broken("worker died", status=500))],
        [(0.1, token()), (0.1, token()), (60.0, token())],
        [(0.1, token())],
    ]
    items = [item(0), item(1), item(2), item(3, cancel_tokens=2), item(4)]
    record, target = run(items, lambda call, number: ends[number])
    assert [request.outcome for request in record.requests] == [
        Outcome.OK,
        Outcome.REFUSED,
        Outcome.FAILED,
        Outcome.CANCELLED,
        Outcome.FAILED,
    ]
    reasons = [request.reason for request in record.requests]
    assert reasons == ["length", "full", "worker died", "the client gave up after 2 tokens", reasons[4]]
    assert "before it was whole" in reasons[4]
    assert [request.status for request in record.requests] == [None, 429, 500, None, None]
    assert target.num_given_up == 1, "a client that gives up closes its stream"
    assert record.requests[2].num_output == 1


def test_a_client_gives_up_after_seconds_from_the_intended_moment():
    """Waiting in the client's own queue costs patience, too."""
    items = [item(0, cancel_s=5.0), item(1, cancel_s=5.0)]
    record, _ = run(items, lambda *_: steady(3, first_s=3.0, gap_s=0.0), max_concurrency=1)
    assert [request.outcome for request in record.requests] == [Outcome.OK, Outcome.CANCELLED]
    assert record.requests[1].closed_s == pytest.approx(5.0)
    assert record.requests[1].sent_s == pytest.approx(3.0)


def test_an_answer_past_the_time_limit_failed():
    """The client's limit is no user's impatience."""
    record, _ = run([item(0)], lambda *_: steady(3, first_s=30.0, gap_s=0.0), timeout_s=10.0)
    assert (record.requests[0].outcome, record.requests[0].reason) == (Outcome.FAILED, "no end within 10 s")


def test_retries_honour_retry_after_and_else_double():
    """What the server says counts; latency counts from the first intention."""
    waits = [0.5, None, None]

    def script(call, number):
        return [(0.0, Refused("busy", status=503, retry_after_s=waits[number]))] if number < 3 else quick(call, number)

    record, target = run([item(0, retries=3, backoff_s=1.0)], script)
    assert target.arrived_s == pytest.approx([0.0, 0.5, 2.5, 6.5])
    request = record.requests[0]
    assert (request.outcome, request.num_retries) == (Outcome.OK, 3)
    assert request.ttft_s == pytest.approx(6.6)


def test_patience_ends_a_series_of_refusals():
    """After its retries a client goes; one whose patience ends before the next try goes then, and asks no more."""
    record, target = run([item(0, retries=2)], lambda *_: [(0.0, Refused("busy", status=429))])
    assert len(target.calls) == 3
    assert (record.requests[0].outcome, record.requests[0].num_retries) == (Outcome.REFUSED, 2)
    busy = Refused("busy", status=429, retry_after_s=60.0)
    record, target = run([item(0, retries=2, cancel_s=5.0)], lambda *_: [(0.0, busy)])
    [request] = record.requests
    assert (request.outcome, request.num_retries, request.closed_s) == (Outcome.REFUSED, 0, pytest.approx(5.0))
    assert len(target.calls) == 1


def test_slow_readers_leave_no_token_times():
    """How slowly a client reads says nothing about gaps between the server's tokens."""
    record, _ = run([item(0, read_tokens_s=2.0)], quick)
    request = record.requests[0]
    assert request.is_ok
    assert (list(request.token_s), request.num_output) == ([], 3)
    assert record.duration_s >= 1.5


def test_interruption_keeps_what_was_measured():
    """Ctrl-C: whole answers stay, those in flight are cancelled with their tokens so far, nothing new is sent."""
    items = [item(k, at_s=float(k)) for k in range(100)]
    record, target = run(items, lambda *_: steady(10, first_s=0.3, gap_s=0.1), stop_at=5.6)
    assert not record.is_complete
    assert len(record.requests) == 6
    assert [request.outcome for request in record.requests] == [Outcome.OK] * 5 + [Outcome.CANCELLED]
    assert (record.requests[5].num_output, record.requests[5].reason) == (4, INTERRUPTED)
    assert record.server == {"num_calls": 6.0}
    assert target.in_flight == 0


def test_half_a_run_is_no_whole_one():
    """Where only a whole run says anything, Ctrl-C ends what asked for it, and a server that went is told."""
    items = [item(k, at_s=float(k)) for k in range(100)]
    with pytest.raises(asyncio.CancelledError):
        run(items, quick, stop_at=5.6, how="run_whole")
    with pytest.raises(Broken, match="wrong key"):
        run(items, lambda *_: [(0.0, Unauthorized("wrong key", status=401))], how="run_whole", num_warmups=0)
    record, _ = run(items[:3], quick, how="run_whole")
    assert record.is_complete


def test_a_key_that_is_no_longer_taken_ends_the_run():
    """After a 401 nothing can succeed: the run ends with what it has."""

    def script(call, number):
        return quick(call, number) if number < 3 else [(0.0, Unauthorized("wrong key", status=401))]

    record, _ = run([item(k, at_s=float(k)) for k in range(50)], script)
    assert not record.is_complete
    assert len(record.requests) == 4
    assert "wrong key" in record.notes[0]


def test_a_server_that_is_gone_ends_the_run():
    """Ten connections in a row that find nobody are enough."""

    def script(call, number):
        return quick(call, number) if number < 3 else [(0.0, Unreachable("nobody there"))]

    record, _ = run([item(k, at_s=float(k)) for k in range(50)], script)
    assert not record.is_complete
    assert len(record.requests) == 13
    assert not record.server
    assert "nobody there" in record.notes[0]


def test_a_warm_up_that_fails_ends_the_run_before_it_begins():
    """A wrong model name shows at once, not in a thousand failed requests."""
    with pytest.raises(Broken, match="no such model"):
        run([item(0)], lambda *_: [(0.0, Broken("no such model", status=404))], num_warmups=1)


def test_warm_ups_send_prompts_of_their_own():
    """What is sent before the run leaves nothing in a cache that the run would find, and no record."""
    record, target = run([item(0), item(1, at_s=1.0)], quick, num_warmups=2)
    assert len(record.requests) == 2
    assert len({call.seed for call in target.calls}) == 4


def test_progress_is_told_while_a_run_goes_on():
    """Whoever draws hears of sent, flying and ended requests, and of the end."""
    seen = []
    run(
        [item(k, at_s=k) for k in range(4)],
        lambda *_: steady(3, first_s=0.1, gap_s=0.4),
        num_total=4,
        on_progress=seen.append,
    )
    assert seen[-1].num_done == seen[-1].num_sent == seen[-1].num_total == 4
    assert seen[-1].num_in_flight == 0
    assert seen[-1].ttft_s == pytest.approx(0.1)
    assert any(progress.num_in_flight for progress in seen)
    assert seen[-1].num_output == 12
    assert any(progress.num_output for progress in seen if not progress.num_done), "tokens count as they come"
    assert [progress.num_output for progress in seen] == sorted(progress.num_output for progress in seen)
    assert [progress.num_done for progress in seen] == sorted(progress.num_done for progress in seen)


def test_an_empty_workload_ends_at_once():
    """Nothing to send is nothing measured, not an error."""
    record, _ = run([], lambda *_: [(0.0, end())])
    assert (list(record.requests), record.is_complete) == ([], True)
