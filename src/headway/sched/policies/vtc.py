"""VTC: the tenant served least comes first, around another policy (ALGORITHMS §15)."""

from __future__ import annotations

import heapq
from collections import defaultdict, deque
from dataclasses import dataclass, replace
from enum import StrEnum

from headway.core import Event, Sequence, StepPlan
from headway.errors import BadSetting
from headway.sched.params import at_least, between, param
from headway.sched.parts.fairness import VirtualCounters
from headway.sched.parts.prepaid import Expect, MovingAverage, Prepaid, given, noisy
from headway.sched.policy import Axes, Policy, Wrapper
from headway.sched.view import View


class Prediction(StrEnum):
    """What is charged for output at admission."""

    NONE = "none"  # nothing: each token when it is emitted
    ORACLE = "oracle"  # the length predicted with the request, else max_output
    NOISY = "noisy"  # the same, off by a random share
    AVERAGE = "average"  # a moving average of the tenant's outputs


@dataclass(frozen=True, slots=True, kw_only=True)
class VtcParams:
    """Parameters of `vtc`; others go to its base."""

    base: str = param("vllm", "the policy that it wraps")
    prompt_cost: float = param(1.0, "charge per prompt token, at admission")
    token_cost: float = param(2.0, "charge per output token")
    prediction: Prediction = param(Prediction.NONE, "output charged at admission: none, oracle, noisy, average")
    noise: float = param(0.5, "largest error of prediction=noisy, as a share")
    seed: int = param(0, "of prediction=noisy")

    def __post_init__(self) -> None:
        """Check the bounds."""
        at_least("prompt_cost", self.prompt_cost, 0.0)
        at_least("token_cost", self.token_cost, 0.0)
        between("noise", self.noise, 0.0, 1.0)


class Vtc(Wrapper):
    """Shows its base the queue in order of weighted service; the base stops at the first that does not fit."""

    Params = VtcParams
    axes = Axes(
        order="least-served tenant, then arrival; preempted ones first",
        sharing="as its base",
        reservation="as its base",
        shortage="as its base",
    )
    source = "Fairness in serving large language models, OSDI'24"

    honours_weight = True

    def __init__(self, params: VtcParams, base: Policy) -> None:
        if base.reorders():
            raise BadSetting(f"base is {params.base!r}, which orders its queue itself; vtc's order would be lost")
        super().__init__(base)
        self.counters = VirtualCounters(params.prompt_cost, params.token_cost)
        expect = _expectation(params)
        self._prepaid = None if expect is None else Prepaid(self.counters, params.token_cost, expect)

    def plan(self, view: View) -> StepPlan:
        """The base's, with the waiting ones in fair order."""
        return self.base.plan(replace(view, waiting=self._in_turn(view)))

    def on_event(self, event: Event) -> None:
        """Keep the counters up to date."""
        self.counters.on_event(event)
        if self._prepaid is not None:
            self._prepaid.on_event(event)
        self.base.on_event(event)

    def _in_turn(self, view: View) -> list[Sequence]:
        """Always the head of the least-served tenant's queue, as if each were charged and admitted in turn."""
        ordered = [seq for seq in view.waiting if seq.num_preemptions]
        queues: dict[str, deque[Sequence]] = defaultdict(deque)
        for seq in view.waiting:
            if not seq.num_preemptions:
                queues[seq.request.tenant].append(seq)
        first_seen = {tenant: at for at, tenant in enumerate(self.counters.tenants)}
        heap = [(self.counters.of(tenant), first_seen[tenant], tenant) for tenant in queues]
        heapq.heapify(heap)
        while heap:
            served, at, tenant = heap[0]
            seq = queues[tenant].popleft()
            ordered.append(seq)
            if queues[tenant]:
                heapq.heapreplace(heap, (served + self._charge(seq), at, tenant))
            else:
                heapq.heappop(heap)
        return ordered

    def _charge(self, seq: Sequence) -> float:
        request = seq.request
        charge = self.counters.prompt_charge(request, request.num_prompt)
        return charge if self._prepaid is None else charge + self._prepaid.charge_of(request) / request.weight


def _expectation(params: VtcParams) -> Expect | None:
    match params.prediction:
        case Prediction.ORACLE:
            return given
        case Prediction.NOISY:
            return noisy(params.noise, params.seed)
        case Prediction.AVERAGE:
            return MovingAverage()
    return None
