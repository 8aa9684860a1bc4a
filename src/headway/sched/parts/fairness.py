"""Virtual token counters: who has been served how much (VTC, OSDI'24; ALGORITHMS §15)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from headway.core import (
    Admitted,
    Arrived,
    Event,
    Finished,
    Preempted,
    PreemptMethod,
    Rejected,
    Request,
    SequenceFinished,
    StepRecord,
    TokenEmitted,
)


@dataclass(slots=True)
class _Owed:
    """Prompt tokens that were charged and are not computed yet."""

    request: Request
    num_tokens: int


class VirtualCounters:
    """Service per tenant in weighted tokens. A tenant that comes back from idleness is lifted: idling earns nothing.

    It is lifted to the least counter of those who are queued, or to that of who left the queue last.
    Feed it every event (`on_event`). It charges a prompt at admission, what was found in the cache apart, and
    each token when it is emitted, each divided by the request's weight; with a `recompute_cost`, what a sequence that
    lost its memory computes again is charged when it comes back. With `charge` a policy books corrections of its own.
    For two tenants that both always have work the counters differ by at most
    max(`prompt_cost` × longest prompt, `token_cost` × most tokens of a batch).
    """

    def __init__(self, prompt_cost: float = 1.0, token_cost: float = 2.0, recompute_cost: float = 0.0) -> None:
        self._recompute_cost = recompute_cost
        self._emitted: dict[str, int] = {}
        self._prompt_cost = prompt_cost
        self._token_cost = token_cost
        self._served: dict[str, float] = {}
        self._requests: dict[str, Request] = {}
        self._queued: dict[str, set[str]] = {}
        self._owed: dict[str, _Owed] = {}
        self._left_last = ""

    def of(self, tenant: str) -> float:
        """Weighted tokens that a tenant received, lifts included."""
        return self._served.get(tenant, 0.0)

    def received(self, tenant: str) -> float:
        """The same without what it was charged for prompts and has not got yet."""
        owed = [entry for entry in self._owed.values() if entry.request.tenant == tenant]
        return self.of(tenant) - sum(self.prompt_charge(entry.request, entry.num_tokens) for entry in owed)

    @property
    def tenants(self) -> list[str]:
        """Everyone ever heard of, in order of first arrival."""
        return list(self._served)

    def charge(self, request: Request, num_tokens: float) -> None:
        """Book weighted tokens for a request's tenant; a negative number corrects an earlier one."""
        tenant = request.tenant
        self._served[tenant] = self._served.get(tenant, 0.0) + num_tokens / request.weight

    def prompt_charge(self, request: Request, num_tokens: int) -> float:
        """What computing so many prompt tokens of a request adds to its tenant's counter."""
        return self._prompt_cost * num_tokens / request.weight

    def on_event(self, event: Event) -> None:
        """Keep the counters up to date."""
        match event:
            case TokenEmitted():
                self.charge(self._requests[event.request_id], self._token_cost)
                if self._recompute_cost:
                    self._emitted[event.seq_id] = event.index
            case StepRecord(grants=grants):
                self._pay(grants)
            case SequenceFinished(seq_id=seq_id):
                self._emitted.pop(seq_id, None)
            case Arrived(request, _):
                self._requests[request.id] = request
                self._lift(request.tenant)
                self._queued.setdefault(request.tenant, set()).add(request.id)
            case Admitted():
                self._admit(event)
            case Preempted(request_id=request_id, method=method) if method is not PreemptMethod.SWAP:
                request = self._requests[request_id]
                self._queued.setdefault(request.tenant, set()).add(request_id)
            case Finished(request=request) | Rejected(request=request):
                self._leave(request)
                self._requests.pop(request.id, None)
                self._owed = {name: entry for name, entry in self._owed.items() if entry.request.id != request.id}
            case _:
                pass

    def _admit(self, event: Admitted) -> None:
        request = self._requests[event.request_id]
        self._leave(request)
        if event.is_first:
            num_new = request.num_prompt - event.num_cached
            self.charge(request, self._prompt_cost * num_new)
            self._owed[event.seq_id] = _Owed(request, num_new)
        elif self._recompute_cost and event.seq_id in self._emitted:
            num_lost = request.num_prompt + self._emitted[event.seq_id] - event.num_cached
            self.charge(request, self._recompute_cost * max(0, num_lost))

    @property
    def backlogged(self) -> list[str]:
        """Tenants with a request in the queue."""
        return [tenant for tenant, waiting in self._queued.items() if waiting]

    def _lift(self, tenant: str) -> None:
        if self._queued.get(tenant):
            return
        others = [other for other in self.backlogged if other != tenant] or [self._left_last]
        self._served[tenant] = max(self.of(tenant), min(map(self._floor, others)))

    def _floor(self, tenant: str) -> float:
        return self.of(tenant)

    def _pay(self, grants: Mapping[str, int]) -> None:
        for seq_id in [seq_id for seq_id in self._owed if seq_id in grants]:
            entry = self._owed[seq_id]
            entry.num_tokens -= grants[seq_id]
            if entry.num_tokens <= 0:
                del self._owed[seq_id]

    def _leave(self, request: Request) -> None:
        waiting = self._queued.get(request.tenant)
        if waiting and request.id in waiting:
            waiting.discard(request.id)
            if not waiting:
                self._left_last = request.tenant


class ReceivedCounters(VirtualCounters):
    """Virtual counters that lift to what the others have really got.

    Of a prompt, which is charged whole, the part that is computed counts: a small tenant that comes while a long
    prompt is under way does not stand behind what nobody has received yet.
    """

    def _floor(self, tenant: str) -> float:
        return self.received(tenant)
