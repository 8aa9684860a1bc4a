"""Errors that other benchmark clients made, each against a target whose truth is known (PUBLIC_ISSUES, topic 11)."""

import pytest

from headway.bench import Chunk, HttpSettings, HttpTarget, Refused, Runner, RunPlan
from headway.report import Outcome, judge, measure
from headway.workload import parse_workload
from tests.support.effort import sample
from tests.support.scripted import (
    DONE,
    FINISH,
    PlainCalls,
    ScriptedTarget,
    ScriptedTransport,
    SlotTarget,
    chat,
    completion,
    end,
    item,
    steady,
    usage,
)
from tests.support.virtual_loop import run_virtual


def run(items, make_target, *, tokenize=None, **plan):
    async def go(clock):
        target = make_target(clock)
        return await Runner(target, PlainCalls(), clock, RunPlan(items=lambda: items, **plan), tokenize=tokenize).run()

    return run_virtual(go)


def over_http(script, items=None, *, tokenize=None, **settings):
    def make(clock):
        return HttpTarget(HttpSettings(url="http://test", **settings), clock, transport=ScriptedTransport(script))

    return run(items or [item(0)], make, tokenize=tokenize)


def answer(*steps):
    return lambda body, number: (200, {}, list(steps))


def test_waiting_for_the_clients_own_gate_is_counted():
    """11.1: 500 ms per request, 10 per second, one at a time: the wait in the client is latency, and is named."""
    items = [item(k, at_s=0.1 * k, num_output=1) for k in range(8)]
    record = run(
        items, lambda clock: ScriptedTarget(clock, lambda *_: steady(1, first_s=0.5, gap_s=0)), max_concurrency=1
    )
    e2e = [request.e2e_s for request in record.requests]
    blind = [request.last_s - request.sent_s for request in record.requests]
    assert sum(e2e) / 8 == pytest.approx(1.9)
    assert sum(blind) / 8 == pytest.approx(0.5)
    assert any("waited in the client" in warning for warning in judge(record, measure(record)).warnings)


def test_tokens_are_counted_not_chunks():
    """11.2: chunks of 1, 3 and 5 tokens at fixed times: TPOT is exact by the server's usage, and by listed ids."""
    texts = [(0.2, "a", 1), (0.4, "bcd", 3), (0.4, "efghi", 5)]
    told = answer(*((wait, completion(text)) for wait, text, _ in texts), (0, FINISH), (0, usage(4, 9)), (0, DONE))
    listed = answer(
        *((wait, completion(text, token_ids=list(range(num)))) for wait, text, num in texts), (0, FINISH), (0, DONE)
    )
    for script, source in ((told, "usage"), (listed, "ids")):
        request = over_http(script).requests[0]
        assert (request.num_output, request.count_source) == (9, source)
        assert request.tpot_s == pytest.approx(0.8 / 8)
        assert list(request.token_s) == pytest.approx([0.2] + [0.6] * 3 + [1.0] * 5)


def test_usage_wins_over_encoding_the_text_again():
    """11.4: the report follows the server's usage, and says that the text would have given another count."""
    steps = [(0.1, completion("abc")), (0, FINISH), (0, usage(4, 7)), (0, DONE)]
    record = over_http(answer(*steps), tokenize=len)
    assert (record.requests[0].num_output, record.requests[0].count_source) == (7, "usage")
    assert any("usage counts" in note for note in record.notes)


def test_an_estimated_count_is_marked():
    """11.4: without usage the count comes from the text, and the report says so."""
    record = over_http(answer((0.1, completion("abc")), (0, FINISH), (0, DONE)), tokenize=len)
    assert record.requests[0].count_source == "retokenized"
    assert any("did not count" in warning for warning in judge(record, measure(record)).warnings)


def test_failures_do_not_flatter():
    """11.5: half the requests refused in 1 ms: latency is that of successes, the share is shown, the run is invalid."""

    def script(call, number):
        return [(0.001, Refused("full", status=429))] if number % 2 else steady(3, first_s=0.5, gap_s=0.1)

    items = [item(k, at_s=float(k)) for k in range(40)]
    record = run(items, lambda clock: ScriptedTarget(clock, script))
    metrics = measure(record)
    assert metrics.total.latencies.ttft.median == pytest.approx(0.5)
    assert metrics.total.latencies.ttft.size == metrics.total.outcomes[Outcome.OK] == 20
    assert metrics.total.failure_share == pytest.approx(0.5)
    verdict = judge(record, metrics)
    assert not verdict.is_valid
    assert "50%" in verdict.warnings[0]


@pytest.mark.parametrize("offset_s", sample([0.0, 2.0, 4.9, 7.5], every=2))
def test_long_answers_across_the_border_count_for_their_part(offset_s):
    """11.6: ten streams at 10 tokens/s at any time: throughput is 100 tokens/s, wherever the window begins."""
    items = [item(k, at_s=offset_s + k, num_output=100) for k in range(60)]
    script = lambda *_: steady(100, first_s=0.1, gap_s=0.1)  # noqa: E731
    record = run(items, lambda clock: ScriptedTarget(clock, script), warmup_s=offset_s + 15.0)
    assert measure(record).total.output_rate == pytest.approx(100, rel=0.02)


def test_a_clock_of_another_pace_is_no_lag():
    """A run may be on time that passes faster than the loop's: the client is not late for that."""

    class Fast:
        def __init__(self, loop):
            self.loop = loop

        def now(self):
            return 3.0 * self.loop.now()

    async def go(loop):
        target = ScriptedTarget(loop, lambda *_: steady(3, first_s=0.5, gap_s=0.1))
        items = [item(k, at_s=0.1 * k) for k in range(20)]
        return await Runner(target, PlainCalls(), Fast(loop), RunPlan(items=lambda: items)).run()

    assert max(run_virtual(go).client_lag_s) == pytest.approx(0.0, abs=1e-9)


def test_the_clients_own_lag_is_measured():
    """11.7: a client that computes for 0.3 s while it should listen notices, and the report warns."""
    items = [item(k, at_s=0.1 * k) for k in range(20)]

    async def go(clock):
        class Busy(PlainCalls):
            def call(self, item):
                clock.spend(0.3)  # a prompt that takes that long to make
                return super().call(item)

        target = ScriptedTarget(clock, lambda *_: steady(3, first_s=0.5, gap_s=0.1))
        return await Runner(target, Busy(), clock, RunPlan(items=lambda: items)).run()

    record = run_virtual(go)
    assert max(record.client_lag_s) >= 0.25
    warnings = judge(record, measure(record)).warnings
    assert any("bottleneck" in warning for warning in warnings)
    assert any("waited in the client" in warning for warning in warnings)


def test_repeated_runs_send_other_prompts_unless_told():
    """11.9: prompts depend on the run's salt; the same salt gives the same prompts for a deliberately warm run."""
    from headway.bench import TextCalls, WordEncoder
    from headway.workload import PromptMaker

    workload = parse_workload(
        {
            "num_requests": 20,
            "arrivals": {"process": "poisson", "rate": 5},
            "lengths": {"prompt": 20, "output": 5},
            "prompts": {"system": {"count": 2, "tokens": 16}},
        }
    )
    first, again, other = (
        [TextCalls(PromptMaker(WordEncoder(), salt=salt)).call(one).prompt for one in workload.items()]
        for salt in (1, 1, 2)
    )
    assert first == again
    assert not set(first) & set(other)
    starts = {prompt[:40] for prompt in first}
    assert len(starts) < len(first), "the system prompts are shared within a run"
    assert not starts & {prompt[:40] for prompt in other}


def test_usage_behind_the_finish_chunk_is_read():
    """11.11: usage comes 200 ms after the finish chunk: it counts, latency ends at the last token, closing is apart."""
    steps = [(0.1, completion("a")), (0.1, completion("b")), (0, FINISH), (0.2, usage(4, 5)), (0.1, DONE)]
    request = over_http(answer(*steps)).requests[0]
    assert (request.num_output, request.count_source) == (5, "usage")
    assert request.e2e_s == pytest.approx(0.2)
    assert request.closed_s == pytest.approx(0.5)


def test_the_start_burst_of_a_closed_loop_is_outside_the_window():
    """11.12: 32 users on a server with 4 slots start at once; the first wave's queueing stays out, and it is stated."""
    items = [
        item(k, session=f"u{user}", at_s=None if turn else 0.0, turn=turn, num_output=2, think_s=8.0 if turn else 0.0)
        for user in range(32)
        for turn in range(6)
        for k in [user * 6 + turn]
    ]

    def make(clock):
        return SlotTarget(clock, lambda call, number: steady(2, first_s=1.0 if number < 32 else 0.2, gap_s=0.1), 4)

    record = run(items, make, is_closed_loop=True)
    metrics = measure(record)
    assert "every user has had one answer" in metrics.window.rule
    assert metrics.whole.latencies.ttft.high > 2 * metrics.total.latencies.ttft.high


def test_a_role_is_no_token():
    """11.13: a role at 5 ms, content at 300 ms: TTFT is 300 ms."""
    steps = [
        (0.005, chat(role="assistant")),
        (0.0, chat("", role="assistant")),
        (0.295, chat("Hello")),
        (0, FINISH),
        (0, DONE),
    ]
    request = over_http(answer(*steps), endpoint="chat").requests[0]
    assert request.ttft_s == pytest.approx(0.3)


def test_a_chunk_without_text_but_with_ids_is_a_token():
    """A token whose text is undecided is a token all the same, where the server lists it."""
    steps = [(0.1, completion("", token_ids=[7])), (0.1, completion("é", token_ids=[8])), (0, FINISH), (0, DONE)]
    request = over_http(answer(*steps)).requests[0]
    assert (request.ttft_s, request.num_output) == (pytest.approx(0.1), 2)


def test_end_of_script_is_used():
    """The helpers' own closing piece ends an answer."""
    record = run(
        [item(0)], lambda clock: ScriptedTarget(clock, lambda *_: [(0.1, Chunk(0.0, "x")), (0, end(num_output=1))])
    )
    assert record.requests[0].is_ok
