"""Requests that guardrails hold back in the queue: who, for how long, and that they learn why."""

import pytest

from headway.core import Request, SamplingParams, Tier
from headway.engine.guardrails import MOST_HOLD_S, Guardrails, GuardSettings
from headway.obs import Decisions
from headway.sched import POLICIES
from tests.support.engines import simulated_engine


def ask(name, num_prompt=8, arrival_s=0.0, max_output=4, **fields):
    params = SamplingParams(temperature=0.0, max_tokens=max_output, ignore_eos=True)
    ids = tuple(range(20, 20 + num_prompt))
    return Request(id=name, prompt_ids=ids, max_output=max_output, arrival_s=arrival_s, params=params, **fields)


class Guarded:
    """An engine under guardrails at a level that the test sets."""

    def __init__(self, policy="vllm"):
        self.core = simulated_engine(policy=policy).core
        self.guards = Guardrails(GuardSettings(long_tokens=16), 64)
        self.guards.level = 1
        self.decisions = Decisions()
        self.core.scheduler.hold_back = self.guards.hold_back
        self.core.listen(self.decisions.on_events)

    def submit(self, *requests):
        for request in requests:
            self.core.submit(request)

    def run(self, num_steps=1000):
        while num_steps and self.core.has_work:
            self.core.step()
            self.core.check()
            num_steps -= 1

    @property
    def running(self):
        return {seq.request.id for seq in self.core.scheduler.queues.running}

    def waited(self, name):
        (story,) = self.decisions.find(name)
        return story["waited_s"]


def test_long_prompts_and_batch_work_wait_while_a_promise_is_broken():
    """Both wait for as long as another one runs, and their waiting is booked on the guardrail."""
    guarded = Guarded()
    guarded.submit(ask("a", max_output=20), ask("long", 17), ask("batch", tier=Tier.FLEX), ask("b"))
    guarded.run(10)
    assert guarded.running == {"a"}
    guarded.run()
    assert set(guarded.waited("long")) == set(guarded.waited("batch")) == {"guardrail"}
    assert guarded.waited("long")["guardrail"] == pytest.approx(0.2, abs=0.02)
    assert "guardrail" not in guarded.waited("b")


def test_what_is_held_back_goes_on_where_nothing_else_is_to_do():
    """The device does not idle, whatever was promised."""
    guarded = Guarded()
    guarded.submit(ask("long", 17))
    guarded.run(1)
    assert guarded.running == {"long"}


@pytest.mark.parametrize("action", ["level", "actions", "time"])
def test_holding_ends(action):
    """When the promises hold again, when the action is off, and half a minute after the request came."""
    guarded = Guarded()
    guarded.submit(ask("a", max_output=30), ask("long", 17))
    guarded.run(2)
    assert guarded.running == {"a"}
    match action:
        case "level":
            guarded.guards.level = 0
        case "actions":
            guarded.guards.change(GuardSettings(long_tokens=16, actions=("batch", "slow")))
        case "time":
            guarded.core.clock.advance(MOST_HOLD_S)
    guarded.run(1)
    assert guarded.running == {"a", "long"}


@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_no_policy_minds(policy):
    """Every policy serves the others meanwhile, and all of them in the end."""
    guarded = Guarded(policy)
    guarded.submit(*(ask(f"r{at}", 4 + 4 * at, tenant=f"t{at % 2}") for at in range(8)))
    guarded.run(3)
    guarded.guards.level = 0
    guarded.run(2)
    guarded.guards.level = 1
    guarded.run()
    assert not guarded.core.has_work
    assert all(guarded.decisions.find(f"r{at}")[0]["finish_reason"] == "length" for at in range(8))
