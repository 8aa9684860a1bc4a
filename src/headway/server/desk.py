"""Between the routes and the engine: what is submitted has passed its tenant's limits, and counts until it ends."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from starlette.types import Scope

from headway.core import Cause, Event, Finished, FinishReason, Refusal, Rejected, SamplingParams, Tier
from headway.engine.door import ExtraWords
from headway.errors import InvalidRequest, Overloaded, TooMany
from headway.server.access import caller_of
from headway.server.job import Job, request_names, submit_all
from headway.server.params import Terms
from headway.server.patience import Patience, patience_of
from headway.server.port import ServedEngine
from headway.server.request_id import request_id, traceparent_of, unique
from headway.tenancy import Ask, House, ServiceClass, Tenant, Ticket, tier_of

EXPECTED_OUTPUT = 256
"""Tokens of output that are reserved from a token rate for a request whose client named no limit."""


@dataclass(frozen=True, slots=True)
class _Call:
    """Who calls, under which id, for how long at most, and in which trace."""

    tenant: Tenant
    id: str
    patience: Patience
    traceparent: str


class Desk:
    """Takes calls for one engine; `on_refused` is told whose call was refused for now.

    A ticket is open for each request from before it is submitted until it ended. `refused` counts calls that the
    engine was not asked about, by cause.
    """

    def __init__(self, engine: ServedEngine, house: House, on_refused: Callable[[str], None]) -> None:
        self._engine, self._house, self._on_refused = engine, house, on_refused
        self._tickets: dict[str, Ticket] = {}
        self.refused: Counter[str] = Counter()
        engine.add_listener(self._on_events)

    def submit(self, scope: Scope, prompts: Sequence[Sequence[int]], terms: Terms, kind: str, param: str) -> Job:
        """Submit every prompt of a call or none, under an id that begins with `kind`.

        Raises `TooMany`, `Forbidden`, `Overloaded` or `InvalidRequest`; what is wrong with the prompts is said of
        `param`, the field that they came from.
        """
        tenant = caller_of(scope).tenant
        patience = patience_of(scope, terms.deadline_ms, terms.ttft_deadline_ms)
        try:
            call = _Call(tenant, unique(kind, request_id(scope)), patience, traceparent_of(scope))
            return self._submit(call, prompts, terms)
        except (TooMany, Overloaded) as error:
            if isinstance(error, TooMany):
                self._turn_away(tenant.name, prompts, terms)
            self._on_refused(tenant.name)
            raise
        except InvalidRequest as error:
            error.param = param if error.param in (None, "prompt", "prompt_ids") else error.param
            raise

    def _turn_away(self, tenant: str, prompts: Sequence[Sequence[int]], terms: Terms) -> None:
        """Count a call beyond its tenant's limits, and let whoever records traffic know of its requests."""
        self.refused[Cause.TENANT_LIMIT] += 1
        control, params = self._engine.control, terms.params
        for prompt in prompts:
            control.admission.on_refusal(
                Refusal(
                    at_s=control.now_s,
                    num_prompt=len(prompt),
                    max_output=params.max_tokens or EXPECTED_OUTPUT,
                    cause=Cause.TENANT_LIMIT,
                    tenant=tenant,
                    choices=params.n,
                )
            )

    def require_room(self, scope: Scope) -> None:
        """Raise `TooMany` where the caller's own limits would refuse even the smallest request. Charges nothing."""
        tenant = caller_of(scope).tenant
        try:
            self._house.gate.require_room(tenant)
        except TooMany:
            self.refused[Cause.TENANT_LIMIT] += 1
            self._on_refused(tenant.name)
            raise

    def _submit(self, call: _Call, prompts: Sequence[Sequence[int]], terms: Terms) -> Job:
        tenant = call.tenant
        tier, model = self._tier(tenant, terms), terms.model or ""
        lengths = tuple(map(len, prompts))
        params = self._bounded(tenant, terms.params, tier, model, max(lengths))
        longest = params.max_tokens or max(1, self._engine.max_model_len - min(lengths))
        ask = Ask(
            num_prompts=lengths,
            max_output=longest,
            expected_output=EXPECTED_OUTPUT if terms.params.max_tokens is None else None,
            n=params.n,
            model=model,
            tier=tier,
        )
        names = request_names(call.id, len(prompts))
        tickets = dict(zip(names, self._house.gate.enter(tenant, ask), strict=True))
        self._tickets |= tickets
        try:
            job = submit_all(self._engine, prompts, params, names, self._extras(call, terms, tier))
        except BaseException:
            for name, ticket in tickets.items():
                ticket.cancel()
                self._tickets.pop(name, None)
            raise
        job.ends_at = call.patience.ends_at
        return job

    def _extras(self, call: _Call, terms: Terms, tier: Tier) -> ExtraWords:
        """What the engine is told of a call beside its prompts and sampling."""
        tenant, patience = call.tenant, call.patience
        extras = ExtraWords(
            tenant=tenant.name,
            weight=tenant.weight,
            kv_guaranteed=tenant.kv.guaranteed,
            kv_most=tenant.kv.most,
            tier=tier,
            priority=terms.priority,
            cache_salt=self._house.salt(tenant, terms.cache_salt),
            traceparent=call.traceparent,
        )
        if patience.timeout_s is not None:
            extras["timeout_s"] = patience.timeout_s
        if patience.ttft_s is not None:
            extras["ttft_s"] = patience.ttft_s
        return extras

    @property
    def num_open(self) -> int:
        """Requests that have passed and not ended."""
        return len(self._tickets)

    def _tier(self, tenant: Tenant, terms: Terms) -> Tier:
        """The tier that a call runs in; under a policy that knows none, everything is `default`."""
        if terms.priority and not self._engine.honours_priority:
            raise InvalidRequest(
                f"priority is {terms.priority}, but this server's policy ignores priorities; leave it out",
                param="priority",
            )
        tier = tier_of(tenant, terms.service_tier)
        return tier if self._engine.honours_tier else Tier.DEFAULT

    def _bounded(
        self, tenant: Tenant, params: SamplingParams, tier: Tier, model: str, num_prompt: int
    ) -> SamplingParams:
        """Params with the tenant's longest output where the client named none; one that it did name is judged later."""
        most = tenant.most_output(ServiceClass.of(tier), model)
        room = self._engine.max_model_len - num_prompt
        if params.max_tokens is not None or most is None or room < 1:
            return params
        return replace(params, max_tokens=min(most, room))

    def _on_events(self, events: list[Event]) -> None:
        """Called in the engine's thread."""
        for event in events:
            match event:
                case Finished(request, FinishReason.ERROR) | Rejected(request):
                    if (ticket := self._tickets.pop(request.id, None)) is not None:
                        ticket.cancel()
                case Finished(request, num_output=num_output):
                    if (ticket := self._tickets.pop(request.id, None)) is not None:
                        ticket.close(request.num_prompt + num_output)
                case _:
                    pass
