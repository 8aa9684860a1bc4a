import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.clock import VirtualClock
from headway.core import Tier
from headway.errors import InvalidRequest, TooMany
from headway.tenancy import Ask, Bucket, Gate, Limits, ServiceClass, Tenant


@given(
    burst=st.integers(1, 50),
    per_minute=st.floats(1, 1000),
    tries=st.lists(st.tuples(st.floats(0, 20), st.integers(1, 60)), max_size=40),
)
def test_no_window_gets_more_than_burst_and_rate(burst, per_minute, tries):
    """Between any two moments at most burst + rate × time passes, and `wait_s` is the truth to a rounding."""
    bucket, now_s, taken = Bucket(per_minute, burst, 0.0), 0.0, []
    for pause_s, wanted in tries:
        now_s += pause_s
        amount = min(wanted, burst)
        wait_s = bucket.wait_s(amount, now_s)
        if wait_s:
            assert bucket.wait_s(amount, now_s + 0.99 * wait_s) > 0
            now_s += wait_s * (1 + 1e-9) + 1e-9
            assert bucket.wait_s(amount, now_s) == 0
        bucket.take(amount)
        taken.append((now_s, amount))
    for first, (begin_s, _) in enumerate(taken):
        total = 0
        for at_s, amount in taken[first:]:
            total += amount
            assert total <= burst + (at_s - begin_s) * per_minute / 60 + 1e-3


def gate_of(clock=None, **limits):
    clock = clock or VirtualClock()
    return Gate(clock.now), Tenant(name="a", limits=Limits(**limits)), clock


def ask(*num_prompts, max_output=10, **more):
    return Ask(num_prompts=num_prompts or (5,), max_output=max_output, **more)


def refusal(gate, tenant, wanted):
    with pytest.raises(TooMany) as caught:
        gate.enter(tenant, wanted)
    return caught.value


def test_the_wait_of_a_refusal_is_when_the_same_call_is_let_in():
    """Retry-After is computed from the bucket: one instant earlier it is still refused."""
    gate, tenant, clock = gate_of(tokens_per_minute=60, token_burst=30)
    gate.enter(tenant, ask(10, max_output=10))
    refused = refusal(gate, tenant, ask(10, max_output=10))
    assert (refused.limit, refused.retry_after_s) == ("tokens", pytest.approx(10.0))
    clock.advance(9.9)
    refusal(gate, tenant, ask(10, max_output=10))
    clock.advance(0.11)
    gate.enter(tenant, ask(10, max_output=10))


def test_what_was_not_used_comes_back_and_what_was_used_beyond_is_a_debt():
    """Settled by what a request really used; an output larger than the burst is waited for afterwards."""
    gate, tenant, clock = gate_of(tokens_per_minute=60, token_burst=30)
    (ticket,) = gate.enter(tenant, ask(10, max_output=1000))
    refusal(gate, tenant, ask(1, max_output=1))
    ticket.close(12)
    (ticket,) = gate.enter(tenant, ask(10, max_output=1000, expected_output=8))
    ticket.close(48)
    assert refusal(gate, tenant, ask(1, max_output=1)).retry_after_s == pytest.approx(32.0)
    clock.advance(32.1)
    gate.enter(tenant, ask(1, max_output=1))


def test_a_ticket_counts_once():
    """Closed and cancelled in any order and number, a request is one request."""
    gate, tenant, _ = gate_of(max_concurrent=2)
    first, second = gate.enter(tenant, ask(1, 1))
    for _ in range(3):
        first.close(5)
        first.cancel()
    assert gate.num_running(tenant) == 1
    second.cancel()
    second.close(5)
    assert gate.num_running(tenant) == 0


def test_all_limits_or_none_are_charged():
    """A call of several prompts passes as a whole; where one limit refuses, no other has lost anything."""
    gate, tenant, _ = gate_of(requests_per_minute=1, request_burst=4, max_concurrent=3)
    gate.enter(tenant, ask(1, 1))
    for _ in range(5):
        assert refusal(gate, tenant, ask(1, 1)).limit == "concurrency"
    tickets = gate.enter(tenant, ask(1))
    assert len(tickets) == 1
    assert gate.num_running(tenant) == 3


def test_limits_of_class_and_model_count_beside_the_tenants():
    """Each is a set of its own; those of other classes and models are not touched."""
    tenant = Tenant(
        name="a",
        class_limits={ServiceClass.BATCH: Limits(max_concurrent=1)},
        model_limits={"big": Limits(max_concurrent=1)},
    )
    gate = Gate(VirtualClock().now)
    gate.enter(tenant, ask(tier=Tier.FLEX))
    assert "class batch" in str(refusal(gate, tenant, ask(tier=Tier.FLEX)))
    gate.enter(tenant, ask(model="big"))
    assert "model big" in str(refusal(gate, tenant, ask(model="big")))
    gate.enter(tenant, ask(model="small"))
    assert gate.num_running(tenant) == 3


@pytest.mark.parametrize(
    ("limits", "wanted", "param"),
    [
        ({"max_input_tokens": 4}, ask(5), "prompt"),
        ({"max_output_tokens": 4}, ask(max_output=5), "max_tokens"),
        ({"max_concurrent": 1}, ask(1, 1), "prompt"),
        ({"requests_per_minute": 1, "request_burst": 1}, ask(1, 1), "prompt"),
        ({"tokens_per_minute": 10, "token_burst": 9}, ask(5, 5), "prompt"),
    ],
)
def test_what_can_never_pass_is_a_mistake_and_not_a_wait(limits, wanted, param):
    """Trying again would be in vain, so the answer is 400 with the numbers."""
    gate, tenant, _ = gate_of(**limits)
    with pytest.raises(InvalidRequest) as caught:
        gate.enter(tenant, wanted)
    assert caught.value.param == param
    assert gate.num_running(tenant) == 0


def test_new_limits_keep_old_counts():
    """Reading the file again is no way to a fresh bucket, and what runs stays counted."""
    gate, tenant, clock = gate_of(requests_per_minute=60, request_burst=3, max_concurrent=5)
    tickets = [gate.enter(tenant, ask())[0] for _ in range(3)]
    gate.adopt([tenant])
    assert refusal(gate, tenant, ask()).limit == "requests"
    wider = Tenant(name="a", limits=Limits(max_concurrent=4))
    gate.adopt([wider])
    gate.enter(wider, ask())
    assert refusal(gate, wider, ask()).limit == "concurrency"
    gate.adopt([])
    for ticket in tickets:
        ticket.close(1)
    clock.advance(1)
    gate.adopt([wider])
    assert gate.num_running(wider) == 1
