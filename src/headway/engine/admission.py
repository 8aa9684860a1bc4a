"""Admission: let a request in, or say at once why not and when to come back."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import NoReturn

from headway.core import Cause, Refusal, Request, Tier
from headway.engine.backlog import MEMORY_S, Backlog
from headway.engine.expiry import Expiry
from headway.engine.guardrails import Guardrails
from headway.engine.lulls import Lulls
from headway.errors import BadSetting, Overloaded

LEAST_RETRY_S, MOST_RETRY_S = 1.0, 600.0

MOST_TRIES = 3.0
"""For the crowd no wait is said to be longer than by this factor."""

LULL, MOST_LULL_S = 0.75, 5.0
"""Once a first token is predicted too late, the backlog shrinks by so much of the limit before others are let in."""

MOST_LIMIT = 1e15
"""No limit may be higher: sums and products with it stay exact."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmissionLimits:
    """How much may wait, and how long. 0 is no limit, everywhere.

    `max_queued_tokens` counts prompt tokens of requests that were never on the device, `max_queued_kv` the same in
    multiples of what the KV cache holds. `ttft_limit_ms` refuses a request whose first token is predicted later than
    that, `queue_timeout_ms` one that has waited so long. `step_timeout_s` is how long a step may take before the
    engine counts as hung.
    """

    max_concurrent_requests: int = 0
    max_queued_requests: int = 1024
    max_queued_tokens: int = 0
    max_queued_kv: float = 0.0
    ttft_limit_ms: float = 0.0
    queue_timeout_ms: float = 0.0
    step_timeout_s: float = 120.0

    def __post_init__(self) -> None:
        """Check every bound. Raises `BadSetting`."""
        for field in fields(self):
            value = getattr(self, field.name)
            is_whole = isinstance(field.default, int)
            if isinstance(value, bool) or not isinstance(value, int if is_whole else int | float):
                kind = "a whole number" if is_whole else "a number"
                raise BadSetting(f"{field.name} is {value!r}; it must be {kind}, 0 or more")
            if not 0 <= value <= MOST_LIMIT:
                raise BadSetting(f"{field.name} is {str(value)[:20]}; it must be 0 (no limit) to {MOST_LIMIT:.0e}")


NO_LIMITS = AdmissionLimits(max_queued_requests=0)


class _Crowd:
    """How many ask for each that is let in, the older ones fading."""

    def __init__(self) -> None:
        self._num_refused = self._num_let_in = self._at_s = 0.0

    def add(self, now_s: float, num_refused: int) -> None:
        """One more asked, and was let in or refused."""
        fade = math.exp(-max(0.0, now_s - self._at_s) / MEMORY_S)
        self._at_s = now_s
        self._num_refused = self._num_refused * fade + num_refused
        self._num_let_in = self._num_let_in * fade + 1 - num_refused

    @property
    def num_tries(self) -> float:
        """How often one asks until it is let in, between 1 and `MOST_TRIES`."""
        return min(MOST_TRIES, 1.0 + self._num_refused / max(1.0, self._num_let_in))


@dataclass(frozen=True, slots=True)
class _Refusal:
    """`is_kept`: nobody takes the place before the wait is over, so luck has no part in it."""

    cause: Cause
    reason: str
    retry_after_s: float
    is_kept: bool = False


class Admission:
    """Judges requests before they are queued, on the thread that submits them. Counts refusals by cause.

    `expiry` ends what it let in when its time is over.

    Where the policy is fair, a full queue is full only for tenants that hold their share of it (by weight, among those
    who wait): whoever floods it cannot lock the others out. The bound may then be exceeded, to at most its double.
    """

    def __init__(self, limits: AdmissionLimits, num_kv_tokens: int, guardrails: Guardrails) -> None:
        self.limits = limits
        self.backlog = Backlog()
        self.guardrails = guardrails
        self.expiry = Expiry(lambda request: self.backlog.token_rate(request.tier))
        self.refused: Counter[Cause] = Counter()
        self.drained: set[str] = set()
        self._crowd = _Crowd()
        self._lulls = Lulls()
        self.on_refusal: Callable[[Refusal], None] = _unheard
        self._num_kv_tokens = num_kv_tokens

    def admit(self, request: Request, now_s: float) -> float | None:
        """Take a request on; its predicted TTFT in seconds where there is one. Raises `Overloaded`."""
        predicted_s = self.backlog.predicted_ttft_s(request)
        refusal = self._refusal(request, predicted_s, now_s)
        num_tries = self._crowd.num_tries
        self._crowd.add(now_s, int(refusal is not None))
        if refusal is not None:
            self.tell(request, refusal.cause, now_s)
            wait_s = refusal.retry_after_s * (1.0 if refusal.is_kept else num_tries)
            self.refuse(refusal.cause, refusal.reason, wait_s)
        self.backlog.add(request)
        return predicted_s

    def tell(self, request: Request, cause: Cause, now_s: float) -> None:
        """Let whoever records traffic know of a request that the engine will not hear of."""
        self.on_refusal(
            Refusal(
                at_s=now_s,
                num_prompt=request.num_prompt,
                max_output=request.max_output,
                cause=cause,
                tenant=request.tenant,
                priority=request.priority,
                choices=request.params.n,
            )
        )

    def refuse(self, cause: Cause, reason: str, retry_after_s: float) -> NoReturn:
        """Count a refusal and raise it as `Overloaded`."""
        self.refused[cause] += 1
        raise Overloaded(reason, retry_after_s=_bounded(retry_after_s), cause=cause)

    def retry_after_s(self) -> float:
        """Seconds in which what waits now will have been begun."""
        rate = self.backlog.token_rate(Tier.FLEX)
        return _bounded(self.backlog.queued().num_tokens / rate if rate else 0.0)

    def _refusal(self, request: Request, predicted_s: float | None, now_s: float) -> _Refusal | None:
        if request.tenant in self.drained:
            return _Refusal(Cause.DRAINING, "this tenant is being drained: no new requests", MOST_RETRY_S)
        return (
            self._too_many(request)
            or self._too_long_queue(request)
            or self._too_late(request, predicted_s, now_s)
            or self._late_for_all(request, predicted_s, now_s)
            or self._guarded(request, now_s)
        )

    def _too_many(self, request: Request) -> _Refusal | None:
        most, num = self.limits.max_concurrent_requests, self.backlog.num_inside
        if not most or num < most:
            return None
        rate = self.backlog.request_rate(request.tier)
        reason = f"{num} requests are being served, the most that may be at once"
        return _Refusal(Cause.CONCURRENCY, reason, (num - most + 1) / rate if rate else 0.0)

    def _too_long_queue(self, request: Request) -> _Refusal | None:
        limits, backlog = self.limits, self.backlog
        if not (limits.max_queued_requests or limits.max_queued_tokens or limits.max_queued_kv):
            return None
        queued, own = backlog.queued(), backlog.queued(request.tenant)
        share = backlog.share(request.tenant, request.weight)
        tokens = queued.num_tokens + request.num_prompt
        own_tokens = own.num_tokens + request.num_prompt
        most = limits.max_queued_requests
        if most and queued.num_requests >= most and own.num_requests >= share * most:
            rate = backlog.request_rate(request.tier)
            reason = f"{queued.num_requests} requests are waiting, limit {most}"
            return _Refusal(Cause.QUEUE_FULL, reason, (queued.num_requests - most + 1) / rate if rate else 0.0)
        for cause, bound, what in (
            (Cause.TOKENS, limits.max_queued_tokens, "tokens"),
            (Cause.KV, int(limits.max_queued_kv * self._num_kv_tokens), "tokens of KV memory"),
        ):
            # An empty queue takes any one request: a prompt longer than the bound would else never be served.
            if bound and queued.num_requests and tokens > bound and own_tokens > share * bound:
                rate = backlog.token_rate(request.tier)
                reason = (
                    f"{queued.num_tokens} prompt tokens are waiting; with this request's it would exceed {bound} {what}"
                )
                return _Refusal(cause, reason, (tokens - bound) / rate if rate else 0.0)
        return None

    def _too_late(self, request: Request, predicted_s: float | None, now_s: float) -> _Refusal | None:
        """Whether the request's own deadlines are past, or predicted to be missed before its first token.

        In an empty engine nothing is predicted: rates stay as they were last measured, maybe on far shorter prompts,
        and while all are refused for them they are not measured anew.
        """
        if not self.backlog.num_inside:
            predicted_s = None
        left_s = min(
            math.inf if request.deadline_s is None else request.deadline_s - now_s,
            math.inf if request.ttft_s is None else request.ttft_s - (now_s - request.arrival_s),
        )
        if left_s > (predicted_s or 0.0):
            return None
        wait_s = (predicted_s or 0.0) - max(0.0, left_s)
        reason = (
            f"its deadline is in {max(0.0, left_s):.3g} s, its first token is predicted in {predicted_s or 0.0:.3g} s"
        )
        return _Refusal(Cause.DEADLINE, f"the request cannot meet its deadline: {reason}", wait_s)

    def _guarded(self, request: Request, now_s: float) -> _Refusal | None:
        """Whether promises to others hold it back. With nobody inside there are none, and nothing that would end it."""
        if not self.backlog.num_inside:
            return None
        verdict = self.guardrails.verdict(request, self.backlog.request_rate(request.tier), now_s)
        return None if verdict is None else _Refusal(Cause.SLO, verdict.reason, verdict.retry_after_s)

    def _late_for_all(self, request: Request, predicted_s: float | None, now_s: float) -> _Refusal | None:
        """Whether its first token is predicted beyond the limit, or a lull holds since that was so for one like it.

        Where nothing waits the limit refuses nobody: a prompt that takes longer would else never be served. A lull
        that turns out too long ends with the backlog.
        """
        limit_s = self.limits.ttft_limit_ms / 1000.0
        if not limit_s or predicted_s is None:
            return None
        if (left_s := self._lulls.left_s(request, now_s)) > 0.0 and self.backlog.is_before(request):
            reason = f"a first token was predicted later than {limit_s:g} s; the backlog shrinks for {left_s:.3g} s"
            return _Refusal(Cause.SLO, reason, left_s, is_kept=True)
        if predicted_s <= limit_s or not self.backlog.queued().num_requests:
            return None
        left_s = min(MOST_RETRY_S, predicted_s - limit_s + min(MOST_LULL_S, LULL * limit_s))
        self._lulls.begin(request, now_s, left_s)
        return _Refusal(
            Cause.SLO, f"its first token is predicted in {predicted_s:.3g} s, limit {limit_s:g} s", left_s, is_kept=True
        )


def _unheard(_: Refusal) -> None:
    """Nobody records."""


def _bounded(seconds: float) -> float:
    return min(MOST_RETRY_S, max(LEAST_RETRY_S, seconds))
