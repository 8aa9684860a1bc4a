"""Figures about the work: what they say after the last step is still true."""

from dataclasses import dataclass

import pytest

from headway.core import QueueSizes, StepRecord
from headway.obs.token_ledger import TokenLedger
from headway.obs.work import WorkFigures


@dataclass
class _Standing:
    num_waiting: int = 0
    num_blocks: int = 8
    num_used_blocks: int = 0
    num_cached_blocks: int = 0
    num_loosened_blocks: int = 0


@pytest.fixture
def standing():
    return _Standing()


def _by_reason(figures):
    families = {family.name: family for family in figures.collect()}
    return sum(sample.value for sample in families["headway:num_requests_waiting_by_reason"].samples)


def test_nobody_waits_for_a_reason_once_the_last_one_left(standing):
    """Clients that give up while they wait may leave no step behind that would say so: the gauge is 0 all the same."""
    figures = WorkFigures(lambda: standing, TokenLedger(16))
    standing.num_waiting = 1
    figures.on_events([StepRecord(0, 0.0, grants={"a": 1}, queued=QueueSizes(num_running=1, num_waiting=1))])
    assert _by_reason(figures) == 1
    standing.num_waiting = 0
    assert _by_reason(figures) == 0
    assert not figures.waiting()


def test_time_inside_the_executor_adds_up_over_steps(standing):
    """A server's own share of the wall time can be read from outside: executor seconds are a counter."""
    figures = WorkFigures(lambda: standing, TokenLedger(16))
    figures.on_events([StepRecord(step, float(step), grants={"a": 1}, executor_s=0.25) for step in range(3)])
    families = {family.name: family for family in figures.collect()}
    assert families["headway:executor_seconds"].samples[0].value == 0.75
