"""The gate: a request passes all limits of its tenant, or none is charged."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from headway.core import Tier
from headway.errors import InvalidRequest, TooMany
from headway.tenancy.meter import Meter, Rate, Refusal
from headway.tenancy.tenant import Limits, ServiceClass, Tenant


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """What one call would use: a request for each of its prompts, `num_prompts` tokens long, each with `n` choices.

    `max_output` is the most that each choice may produce. `expected_output` is what to reserve for it where its client
    named no limit, so that a long context does not use up a rate that a short answer leaves untouched.
    """

    num_prompts: tuple[int, ...]
    max_output: int
    expected_output: int | None = None
    n: int = 1
    model: str = ""
    tier: Tier = Tier.DEFAULT

    def reserved(self, burst: int | None) -> list[int]:
        """Tokens to charge for each request: prompt and longest output, the latter cut to fit into a burst.

        What is used beyond that is charged when it is known, as a debt that later requests wait for.
        """
        each = self.max_output if self.expected_output is None else min(self.max_output, self.expected_output)
        num_prompt, num_output = sum(self.num_prompts), each * self.n * len(self.num_prompts)
        if burst is not None:
            num_output = max(0, min(num_output, burst - num_prompt))
        share = num_output // len(self.num_prompts)
        return [num + share for num in self.num_prompts]


class Ticket:
    """One request inside. `close` when it ended, `cancel` when it came to nothing; the first of them counts."""

    def __init__(
        self, meters: Sequence[Meter], num_tokens: int, now: Callable[[], float], lock: threading.Lock
    ) -> None:
        self._meters, self._num_tokens, self._now, self._lock = meters, num_tokens, now, lock
        self._since_s = now()
        self._is_open = True

    def close(self, num_used: int) -> None:
        """The request used so many tokens; what it was charged beyond is given back."""
        with self._lock:
            if self._is_open:
                self._is_open = False
                for meter in self._meters:
                    meter.settle(self._num_tokens, num_used, self._now() - self._since_s)

    def cancel(self) -> None:
        """Give everything back: somebody else refused the request, or failed it."""
        with self._lock:
            if self._is_open:
                self._is_open = False
                for meter in self._meters:
                    meter.give_back(self._num_tokens)


class Gate:
    """Meters of all tenants. Safe from any thread: tickets are closed where requests end.

    `now` gives seconds on a clock that never goes back.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._lock = threading.Lock()
        self._meters: dict[tuple[str, str], Meter] = {}

    def enter(self, tenant: Tenant, ask: Ask) -> list[Ticket]:
        """Let all requests of a call in, or none; a ticket for each.

        Raises `TooMany` with the seconds until every limit would let them in, `InvalidRequest` where one never will.
        """
        places = tenant.limits_for(ServiceClass.of(ask.tier), ask.model)
        for where, limits in places.items():
            _require_possible(_name(tenant, where), limits, ask)
        bursts = [limits.most_tokens for limits in places.values() if limits.most_tokens is not None]
        charges = ask.reserved(min(bursts, default=None))
        with self._lock:
            now_s = self._now()
            meters = {where: self._meter(tenant, where, limits, now_s) for where, limits in places.items()}
            found = [
                (refusal, where)
                for where, meter in meters.items()
                if (refusal := meter.refusal(len(charges), sum(charges), now_s)) is not None
            ]
            if found:
                refusal, where = max(found, key=lambda entry: entry[0].retry_after_s)
                raise _too_many(_name(tenant, where), refusal)
            for num_tokens in charges:
                for meter in meters.values():
                    meter.charge(num_tokens)
            return [Ticket(list(meters.values()), num_tokens, self._now, self._lock) for num_tokens in charges]

    def require_room(self, tenant: Tenant) -> None:
        """Raise `TooMany` where the tenant's own limits would refuse even the smallest request. Charges nothing."""
        with self._lock:
            now_s = self._now()
            refusal = self._meter(tenant, "", tenant.limits, now_s).refusal(1, 1, now_s)
        if refusal is not None:
            raise _too_many(_name(tenant, ""), refusal)

    def rates(self, tenant: Tenant) -> list[Rate]:
        """How a tenant stands with its own rates; none where neither requests nor tokens are limited."""
        with self._lock:
            now_s = self._now()
            return self._meter(tenant, "", tenant.limits, now_s).rates(now_s)

    def num_running(self, tenant: Tenant) -> int:
        """Requests of a tenant that are inside."""
        with self._lock:
            return self._meter(tenant, "", tenant.limits, self._now()).num_running

    def adopt(self, tenants: Sequence[Tenant]) -> None:
        """Go on under the limits of a new roster: meters of the same tenant and place keep their counts."""
        with self._lock:
            now_s = self._now()
            places = {
                (tenant.name, where): limits for tenant in tenants for where, limits in _every_limit(tenant).items()
            }
            # One that lost its limits still counts what runs under it, until that ends.
            self._meters = {
                place: meter for place, meter in self._meters.items() if place in places or meter.num_running
            }
            for place, meter in self._meters.items():
                meter.resize(places.get(place, Limits()), now_s)

    def _meter(self, tenant: Tenant, where: str, limits: Limits, now_s: float) -> Meter:
        meter = self._meters.get((tenant.name, where))
        if meter is None:
            meter = self._meters[tenant.name, where] = Meter(limits, now_s)
        return meter


def _every_limit(tenant: Tenant) -> dict[str, Limits]:
    of_classes = {f"class {name}": limits for name, limits in tenant.class_limits.items()}
    return {"": tenant.limits} | of_classes | {f"model {name}": limits for name, limits in tenant.model_limits.items()}


def _require_possible(name: str, limits: Limits, ask: Ask) -> None:
    """Raise `InvalidRequest` for what these limits will never let in, so that nobody tries again in vain."""
    num_requests = len(ask.num_prompts)
    for value, most, what, param in (
        (max(ask.num_prompts), limits.max_input_tokens, "tokens of the prompt, but at most {} are allowed", "prompt"),
        (ask.max_output, limits.max_output_tokens, "tokens of output, but at most {} are allowed", "max_tokens"),
        (num_requests, limits.max_concurrent, "prompts in one call, but at most {} may run at once", "prompt"),
        (num_requests, limits.most_requests, "prompts in one call, but at most {} may come at once", "prompt"),
        (sum(ask.num_prompts), limits.most_tokens, "prompt tokens, but at most {} may be used at once", "prompt"),
    ):
        if most is not None and value > most:
            raise InvalidRequest(f"{name}: {value} {what.format(most)}", param=param)


def _too_many(name: str, refusal: Refusal) -> TooMany:
    return TooMany(f"{name}: {refusal.what}", retry_after_s=refusal.retry_after_s, limit=refusal.limit)


def _name(tenant: Tenant, where: str) -> str:
    return f"limit of tenant {tenant.name!r}{f', {where}' if where else ''}"
