"""Charging output before it is made: VTC with length prediction (ALGORITHMS §15, variants)."""

from __future__ import annotations

import random
from collections.abc import Callable

from headway.core import Admitted, Arrived, Event, Finished, FinishReason, Rejected, Request, TokenEmitted
from headway.sched.parts.fairness import VirtualCounters

Expect = Callable[[Request], float]
"""How many tokens one choice of a request is expected to emit."""

_WINDOW = 5


def given(request: Request) -> float:
    """The length predicted with the request, else its max_output."""
    return float(request.max_output if request.predicted is None else request.predicted)


def noisy(share: float, seed: int) -> Expect:
    """`given`, off by up to `share` either way; the same each time for the same request."""

    def expect(request: Request) -> float:
        rng = random.Random(f"{seed}:{request.id}")
        return given(request) * rng.uniform(1.0 - share, 1.0 + share)

    return expect


class MovingAverage:
    """Each tenant's recent output length; 0 until it had one."""

    def __init__(self) -> None:
        self._lengths: dict[str, float] = {}

    def __call__(self, request: Request) -> float:
        """What is expected of a request."""
        return self._lengths.get(request.tenant, 0.0)

    def learn(self, request: Request, num_output: float) -> None:
        """A choice of a request ended by itself."""
        old = self._lengths.get(request.tenant, 0.0)
        self._lengths[request.tenant] = ((_WINDOW - 1) * old + num_output) / _WINDOW if old else num_output


class Prepaid:
    """Charges the expected output at admission, and only the difference later: beyond it, or back at the end.

    Feed it every event after the counters, whose charge for each token it takes back while paid-up tokens last.
    """

    def __init__(self, counters: VirtualCounters, token_cost: float, expect: Expect) -> None:
        self._counters = counters
        self._token_cost = token_cost
        self._expect = expect
        self._requests: dict[str, Request] = {}
        self._paid: dict[str, float] = {}

    def charge_of(self, request: Request) -> float:
        """What an admission will charge for the request's output."""
        return self._token_cost * self._expect(request) * request.params.n

    def on_event(self, event: Event) -> None:
        """Follow a request from its arrival to its end."""
        match event:
            case Arrived(request=request):
                self._requests[request.id] = request
            case Admitted(request_id=request_id, is_first=True):
                self._paid[request_id] = paid = self.charge_of(self._requests[request_id])
                self._counters.charge(self._requests[request_id], paid)
            case TokenEmitted(request_id=request_id):
                self._pay_back(request_id, min(self._token_cost, self._paid.get(request_id, 0.0)))
            case Finished(request=request, reason=reason, num_output=num_output):
                self._pay_back(request.id, self._paid.get(request.id, 0.0))
                if isinstance(self._expect, MovingAverage) and reason in (FinishReason.STOP, FinishReason.LENGTH):
                    self._expect.learn(request, num_output / request.params.n)
                self._forget(request.id)
            case Rejected(request=request):
                self._forget(request.id)
            case _:
                pass

    def _pay_back(self, request_id: str, amount: float) -> None:
        if amount > 0.0:
            self._paid[request_id] -= amount
            self._counters.charge(self._requests[request_id], -amount)

    def _forget(self, request_id: str) -> None:
        self._requests.pop(request_id, None)
        self._paid.pop(request_id, None)
