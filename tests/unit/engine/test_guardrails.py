"""Guardrails: a broken promise holds work back, in two levels, and a kept one lets it in again, later."""

import logging
from dataclasses import replace

import pytest

from headway.core import Admitted, Arrived, Finished, FinishReason, Request, StepRecord, Tier, TokenEmitted
from headway.engine.guardrails import Guardrails, GuardSettings, Window
from headway.errors import BadSetting


def ask(name="r", num_prompt=10, **fields):
    return Request(id=name, prompt_ids=(1,) * num_prompt, max_output=10, **fields)


class Traffic:
    """A guard, and twenty first tokens a second at a given TTFT."""

    def __init__(self, **settings):
        settings = {"slo": {"ttft_p95_ms": 1000}, "window_s": 5.0, "escalate_s": 5.0, **settings}
        self.guard = Guardrails(GuardSettings(**settings), 100)
        self.now_s = 100.0
        self._serial = 0

    def run(self, seconds, ttft_s, free_blocks=100):
        for _ in range(seconds):
            for _ in range(20):
                self._serial += 1
                request = ask(f"r{self._serial}", arrival_s=self.now_s - ttft_s)
                self.guard.on_events([Arrived(request, self.now_s)])
                self.guard.on_events([TokenEmitted(request.id, request.id, 0, 0, 1, self.now_s)])
            self._judge(free_blocks)

    def leave(self, seconds, after_s, num=20, *, is_admitted=False):
        """So many requests a second whose clients leave then, without a token."""
        for _ in range(seconds):
            for _ in range(num):
                self._serial += 1
                request = ask(f"r{self._serial}", arrival_s=self.now_s - after_s)
                self.guard.on_events([Arrived(request, self.now_s)])
                if is_admitted:
                    self.guard.on_events([Admitted(request.id, request.id, 0, is_first=True, at_s=request.arrival_s)])
                self.guard.on_events([Finished(request, FinishReason.ABORT, 0, 0, self.now_s)])
            self._judge(100)

    def _judge(self, free_blocks):
        self.now_s += 1.0
        self.guard.on_events([StepRecord(0, self.now_s - 0.1, free_blocks=free_blocks, end_s=self.now_s)])

    def refused(self, **fields):
        verdict = self.guard.verdict(ask(**fields), 4.0, self.now_s)
        return None if verdict is None else verdict.retry_after_s


def test_levels_rise_while_a_promise_is_broken_and_fall_after_quiet_times(caplog):
    """Level 1 at once, 2 after five more seconds; each falls after ten quiet seconds, and every move is logged."""
    traffic = Traffic()
    traffic.run(5, ttft_s=0.5)
    assert traffic.guard.level == 0
    with caplog.at_level(logging.WARNING):
        traffic.run(3, ttft_s=2.0)
        assert traffic.guard.level == 1
        traffic.run(6, ttft_s=2.0)
        assert traffic.guard.level == 2
        traffic.run(9, ttft_s=0.5)
        assert traffic.guard.level == 2
        traffic.run(10, ttft_s=0.5)
        assert traffic.guard.level == 1
        traffic.run(11, ttft_s=0.5)
        assert traffic.guard.level == 0
    assert len(caplog.records) == 4
    assert "ttft_p95_ms" in caplog.text


def test_what_is_just_kept_does_not_count_as_recovered():
    """Between nine tenths of the limit and the limit the level stays: it does not flap."""
    traffic = Traffic(escalate_s=1000.0)
    traffic.run(4, ttft_s=2.0)
    level = traffic.guard.level
    traffic.run(30, ttft_s=0.93)
    assert traffic.guard.level == level >= 1


def test_level_1_holds_back_long_prompts_and_batch_work_only():
    """Others come in as ever."""
    traffic = Traffic(long_tokens=100, escalate_s=1000.0)
    traffic.run(4, ttft_s=2.0)
    assert traffic.guard.level == 1
    assert traffic.refused() is None
    assert traffic.refused(num_prompt=101) == 10.0
    assert traffic.refused(tier=Tier.FLEX) == 10.0


def test_level_2_lets_new_requests_in_at_half_the_rate():
    """At four a second measured, the next may come after half a second."""
    traffic = Traffic()
    traffic.run(12, ttft_s=2.0)
    assert traffic.guard.level == 2
    assert traffic.refused() is None
    assert traffic.refused() == pytest.approx(0.5)
    traffic.now_s += 0.51
    assert traffic.refused() is None


def test_each_action_is_off_by_flag():
    """With no action left a broken promise is only told."""
    traffic = Traffic(actions=(), long_tokens=100)
    traffic.run(12, ttft_s=2.0)
    assert traffic.guard.level == 2
    for _ in range(3):
        assert traffic.refused(num_prompt=1000, tier=Tier.FLEX) is None


@pytest.mark.parametrize(("promise", "is_admitted"), [("ttft", False), ("ttft", True), ("queue_wait", False)])
def test_clients_that_give_up_waiting_break_the_promise(promise, is_admitted):
    """A flood of which nobody stays for a first token: what each waited is known to be too long."""
    traffic = Traffic(slo={f"{promise}_p95_ms": 1000})
    traffic.leave(2, after_s=1.5, is_admitted=is_admitted)
    assert traffic.guard.level == 1


def test_who_gives_up_before_a_limit_tells_nothing():
    """It neither breaks a promise nor makes one look kept, whatever their number; nor do the admitted for the queue."""
    traffic = Traffic(slo={"ttft_p50_ms": 1000, "queue_wait_p50_ms": 1000})
    traffic.leave(2, after_s=0.1)
    assert traffic.guard.level == 0
    traffic.run(1, ttft_s=2.0)
    traffic.leave(2, after_s=0.1, num=100)
    assert traffic.guard.level == 1
    assert set(traffic.guard.broken) == {"ttft_p50_ms"}
    queue = Traffic(slo={"queue_wait_p95_ms": 1000})
    queue.leave(2, after_s=5.0, is_admitted=True)
    assert queue.guard.level == 0


def test_limits_that_change_count_for_who_gives_up_from_then_on():
    """The watch hears of the new table."""
    traffic = Traffic()
    traffic.guard.change(replace(traffic.guard.settings, slo={"ttft_p95_ms": 2000}))
    traffic.leave(2, after_s=1.5)
    assert traffic.guard.level == 0
    traffic.guard.change(replace(traffic.guard.settings, slo={"ttft_p95_ms": 1200}))
    traffic.leave(2, after_s=1.5)
    assert traffic.guard.level == 1


def test_without_a_table_nobody_is_remembered():
    """Who was here when it was taken away ends unheard; a later table does not find what they left."""
    traffic = Traffic()
    for name in ("waits", "runs"):
        traffic.guard.on_events([Arrived(ask(name, arrival_s=traffic.now_s), traffic.now_s)])
    traffic.guard.on_events([TokenEmitted("runs", "runs", 0, 0, 1, traffic.now_s)])
    assert traffic.guard._watch.num_followed
    table = traffic.guard.settings
    traffic.guard.change(replace(table, slo={}))
    traffic.guard.on_events([Finished(ask("waits"), FinishReason.ABORT, 0, 0, traffic.now_s)])
    traffic.guard.change(table)
    assert not traffic.guard._watch.num_followed
    traffic.run(6, ttft_s=2.0)
    assert traffic.guard.level


def test_memory_is_a_promise_too():
    """More than 88 % of the blocks in use breaks it."""
    traffic = Traffic(slo={"kv_cache_utilization_max": 0.88})
    traffic.run(2, ttft_s=0.1, free_blocks=20)
    assert traffic.guard.level == 0
    traffic.run(2, ttft_s=0.1, free_blocks=5)
    assert traffic.guard.level == 1


def test_a_windows_quantile_is_right_to_five_percent_and_forgets():
    """Of 1 to 100 ms the 95th is 95 ms; ten seconds later nothing is left."""
    window = Window(5.0)
    for value in range(1, 101):
        window.add(10.0, value / 1000.0)
    assert window.quantile(0.95, 10.0) == pytest.approx(0.095, rel=0.06)
    assert window.quantile(0.95, 20.0) is None


@pytest.mark.parametrize("slo", [{"ttft_p95": 1}, {"tpot_p95_ms": 1}, {"ttft_p95_ms": 0}, {"itl_p95_ms": True}])
def test_the_table_is_checked(slo):
    """Unknown keys and limits that are no positive number are refused."""
    with pytest.raises(BadSetting):
        GuardSettings(slo=slo)
