"""Three times the capacity, in virtual time: what is let in is served in the time that was predicted for it."""

import random
from statistics import median

import pytest

from headway.core import Request, SamplingParams, StepRecord, TokenEmitted
from headway.engine.admission import Admission, AdmissionLimits
from headway.engine.guardrails import Guardrails, GuardSettings
from headway.errors import Overloaded
from tests.support.engines import simulated_engine

STEP_S = 0.01


class Overload:
    """Requests of 40 tokens in and 8 out against an engine that ends some 60 of them a second at most."""

    def __init__(self, policy, **limits):
        engine = simulated_engine(
            policy=policy, max_num_seqs=8, max_num_batched_tokens=64, num_blocks=256, prefix_cache="none"
        )
        self.core = engine.core
        guards = Guardrails(GuardSettings(), 256)
        self.admission = Admission(AdmissionLimits(**{"max_queued_requests": 0, **limits}), 1024, guards)
        self.core.listen(self.admission.backlog.on_events)
        self.core.listen(self._hear)
        self.predicted, self.actual, self.refused, self.ends = {}, {}, [], 0
        self._arrivals = {}

    def _hear(self, events):
        for event in events:
            if isinstance(event, TokenEmitted) and event.index == 0:
                self.actual[event.request_id] = event.at_s - self._arrivals[event.request_id]
            elif isinstance(event, StepRecord):
                self.ends += len(event.finished)

    def run(self, rate, seconds):
        chance, number, clock = random.Random(7), 0, self.core.clock
        due_s = end_s = clock.now()
        end_s += seconds
        while clock.now() < end_s:
            while due_s <= clock.now():
                number += 1
                self._ask(f"r{len(self._arrivals)}-{number}", due_s)
                due_s += chance.expovariate(rate)
            if not self.core.step():
                clock.advance(STEP_S)

    def _ask(self, name, now_s):
        params = SamplingParams(temperature=0.0, max_tokens=8)
        request = Request(id=name, prompt_ids=tuple(range(20, 60)), max_output=8, arrival_s=now_s, params=params)
        try:
            predicted_s = self.admission.admit(request, now_s)
        except Overloaded as error:
            self.refused.append((error.cause, error.retry_after_s))
            return
        self._arrivals[name] = now_s
        if predicted_s is not None:
            self.predicted[name] = predicted_s
        self.core.submit(request)


@pytest.mark.parametrize("policy", ["vllm", "headway"])
@pytest.mark.parametrize("seconds", [4, pytest.param(8, marks=pytest.mark.slow)])
def test_beyond_capacity_the_promise_holds_for_what_is_let_in(policy, seconds):
    """As much is finished as at capacity, first tokens come in about the limit, half are predicted to a third."""
    at_capacity = Overload(policy)
    at_capacity.run(200, seconds)
    over = Overload(policy, ttft_limit_ms=1000)
    over.run(200, seconds)
    assert over.ends >= 0.9 * at_capacity.ends
    late = sorted(over.actual.values())
    assert late[int(0.95 * len(late))] < 2.0
    errors = [abs(over.actual[name] / seconds - 1) for name, seconds in over.predicted.items() if name in over.actual]
    assert median(errors) < 1 / 3
    assert {cause for cause, _ in over.refused} == {"slo"}
    assert at_capacity.actual[max(at_capacity.actual, key=at_capacity.actual.get)] > 2.0
