from dataclasses import replace

import pytest

from headway.bench.isolation import BIG, GRACE_S, SMALL, IsolationLoad, felt
from headway.errors import BadSetting
from headway.report import Outcome, RequestRecord, RunRecord


def record(number, tenant, ttft_s, outcome=Outcome.OK, end_s=50.0):
    return RequestRecord(
        id=f"{tenant}-{number}",
        intended_s=float(number),
        outcome=outcome,
        num_prompt=100,
        num_output=10,
        sent_s=float(number),
        first_s=None if ttft_s is None else number + ttft_s,
        last_s=None if ttft_s is None else number + ttft_s + 1.0,
        closed_s=end_s,
        tenant=tenant,
    )


@pytest.mark.parametrize("duration_s", [5000, pytest.param(20_000, marks=pytest.mark.slow)])
def test_the_big_tenant_asks_for_its_factor_of_tokens(duration_s):
    """Over a long time its tokens are 20 times the small one's; the small one's requests are the same in every run."""
    load = IsolationLoad(duration_s=duration_s)
    solo, both = load.items([SMALL]), load.items([SMALL, BIG])
    assert [item for item in both if item.tenant == SMALL] == solo
    tokens = {name: sum(one.num_prompt + one.num_output for one in both if one.tenant == name) for name in (SMALL, BIG)}
    assert tokens[BIG] / tokens[SMALL] == pytest.approx(20.0, rel=0.05)
    assert len(solo) / duration_s == pytest.approx(1.0, rel=0.05)
    assert [item.at_s for item in both] == sorted(item.at_s for item in both)


def test_the_flood_ends_with_the_load_and_small_ones_get_a_grace():
    """A run lasts no longer than it should, whatever the backlog."""
    for item in IsolationLoad(duration_s=50.0).items([SMALL, BIG]):
        assert item.at_s + item.cancel_s == pytest.approx(50.0 + (GRACE_S if item.tenant == SMALL else 0.0))


def test_whoever_was_not_answered_waited_at_least_until_it_left():
    """A server that never answers does not look quick."""
    fine = [record(number, SMALL, 0.1) for number in range(20)]
    run = RunRecord(requests=fine, duration_s=60.0, label="x")
    assert felt(run, 30.0).ttft_p99_s == pytest.approx(0.1)
    lost = record(20, SMALL, None, Outcome.CANCELLED, end_s=90.0)
    result = felt(replace(run, requests=[*fine, lost]), 30.0)
    assert result.ttft_p99_s > 50.0
    assert result.num_unanswered == 1
    assert result.served_tokens_per_s == pytest.approx(20 * 110 / 30)


def test_what_cannot_be_is_refused():
    """With the name and the bound."""
    with pytest.raises(BadSetting, match="rate is 0"):
        IsolationLoad(rate=0)
