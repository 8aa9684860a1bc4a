"""A policy replaced while requests run: nothing is lost, nothing is said twice, the memory adds up."""

import itertools
from functools import cache

import pytest

from headway.clock import VirtualClock
from headway.core import (
    Admitted,
    Finished,
    FinishReason,
    Place,
    Preempted,
    Rejected,
    Request,
    SamplingParams,
    TokenEmitted,
)
from headway.engine import EngineCore
from headway.executor.simulated import SimulatedExecutor
from headway.kv import KVCache, make_prefix_cache
from headway.sched import POLICIES, Scheduler, make_policy
from headway.sched.handover import missed
from tests.support.effort import sample

LIMITS = {"max_num_seqs": 6, "max_num_batched_tokens": 64}
NUM_BLOCKS, BLOCK_SIZE = 96, 4


def a_policy(name, **settings):
    return make_policy(name, {key: str(value) for key, value in settings.items()}, LIMITS)


def by_length(seq):
    """The reason to end once a sequence has all its tokens."""
    return FinishReason.LENGTH if seq.num_output >= seq.request.max_output else None


def first_at_once(seq):
    """The same, but the first choice of a request has one token only."""
    return FinishReason.STOP if seq.choice == 0 else by_length(seq)


class Engine:
    """A core in virtual time, and everything it ever said."""

    def __init__(self, policy, num_blocks=NUM_BLOCKS, stop=by_length):
        self.clock = VirtualClock()
        kv = KVCache(num_blocks, BLOCK_SIZE, make_prefix_cache("hashed", BLOCK_SIZE))
        executor = SimulatedExecutor(num_blocks, BLOCK_SIZE, self.clock, lambda batch: 0.01, {})
        self.core = EngineCore(Scheduler(policy, kv, stop, name="first"), executor, self.clock)
        self.events = []
        self.core.listen(self.events.extend)

    def submit(self, num, *, n=1, start=0):
        for at in range(start, start + num):
            prompt = tuple((at * 37 + place) % 500 + 10 for place in range(5 + at * 7 % 23))
            params = SamplingParams(temperature=0.0, max_tokens=4 + at % 9, n=n)
            self.core.submit(
                Request(id=f"r{at}", prompt_ids=prompt, max_output=4 + at % 9, params=params, tenant=f"t{at % 2}")
            )

    def run(self, most=2000):
        for _ in range(most):
            if not self.core.has_work:
                return
            if not self.core.step():
                self.clock.advance(0.01)
            self.core.check()
        raise AssertionError(f"{len(self.core.scheduler.queues.families)} requests never end")

    def tokens(self):
        said = {}
        for event in self.events:
            if isinstance(event, TokenEmitted):
                said.setdefault(event.seq_id, []).append((event.index, event.token_id))
        return said


@cache
def undisturbed():
    engine = Engine(a_policy("vllm"))
    engine.submit(12)
    engine.run()
    return engine.tokens()


@pytest.mark.parametrize(("before", "after"), sample(itertools.product(sorted(POLICIES), repeat=2), every=16))
def test_any_policy_can_follow_any_other(before, after):
    """Every request ends once, with the tokens it would have had, whatever policy follows whatever policy."""
    engine = Engine(a_policy(before))
    engine.submit(12)
    for _ in range(5):
        engine.core.step()
    engine.core.change_policy(a_policy(after), after)
    engine.core.check()
    engine.run()
    ended = [event.request.id for event in engine.events if isinstance(event, Finished)]
    assert sorted(ended) == sorted(f"r{at}" for at in range(12))
    assert not [event for event in engine.events if isinstance(event, Rejected)]
    assert engine.tokens() == undisturbed()
    assert engine.core.scheduler.kv.num_free == NUM_BLOCKS


@pytest.mark.parametrize("after", ["vllm", "headway", "vllm_v0", "vtc"])
def test_choices_of_one_prompt_survive(after):
    """Requests with three choices, some of them forked already, go on under the next policy."""
    engine = Engine(a_policy("headway"))
    engine.submit(4, n=3)
    for _ in range(4):
        engine.core.step()
    engine.core.change_policy(a_policy(after), after)
    engine.run()
    tokens = engine.tokens()
    assert len(tokens) == 12
    assert all([index for index, _ in said] == list(range(len(said))) for said in tokens.values())


def test_a_request_whose_first_choice_has_ended_was_admitted_all_the_same():
    """Its tenant is charged for the prompt, once; one that nobody has begun yet was not admitted."""
    engine = Engine(a_policy("headway", max_num_seqs=3), stop=first_at_once)
    engine.submit(2, n=3)
    for _ in range(3):
        engine.core.step()
    queues = engine.core.scheduler.queues
    assert [seq.choice for seq in queues.families["r0"].members if seq.place is not Place.GONE] == [1, 2]
    heard = [event for event in missed(queues, 0.0) if isinstance(event, Admitted)]
    assert [(event.request_id, event.is_first) for event in heard] == [("r0", True)]


def test_the_same_policy_with_other_parameters_keeps_its_place_and_its_knowledge():
    """Raising or lowering a limit of headway preempts nobody, and the tenants' counters go on."""
    engine = Engine(first := a_policy("headway"))
    engine.submit(8)
    for _ in range(4):
        engine.core.step()
    counters = first.counters
    engine.core.change_policy(second := a_policy("headway", max_num_seqs=2, itl_target_ms=50), "headway")
    engine.run()
    assert second.counters is counters
    assert not [event for event in engine.events if isinstance(event, Preempted)]
    assert len([event for event in engine.events if isinstance(event, Finished)]) == 8


def test_what_is_held_in_the_queue_does_not_lock_the_engine_when_parts_are_switched_off():
    """D has given up half for G and waits with the rest; B, which comes first, needs that; prices are off by now."""
    engine = Engine(a_policy("headway", overflow=0), num_blocks=9)

    def submit(name, first_id, num_prompt, max_output, priority):
        prompt = tuple(range(first_id, first_id + num_prompt))
        engine.core.submit(Request(id=name, prompt_ids=prompt, max_output=max_output, priority=priority))

    submit("D", 100, 26, 7, 0)
    submit("G", 200, 8, 4, -2)
    engine.core.step()
    submit("B", 300, 29, 3, -1)
    while not [event for event in engine.events if isinstance(event, Preempted)]:
        engine.core.step()
    assert engine.core.scheduler.kv.num_held("D") > 0
    engine.core.change_policy(a_policy("headway", overflow=0, shortage_by_cost=False), "headway")
    engine.run()
    assert [event.request.id for event in engine.events if isinstance(event, Finished)] == ["G", "B", "D"]
