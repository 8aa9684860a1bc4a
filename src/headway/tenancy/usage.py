"""What each tenant used, counted from events as they happen."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, date, datetime

from headway.core import Admitted, Arrived, Event, Finished, Rejected, TokenEmitted


@dataclass(frozen=True, slots=True, order=True)
class UsageKey:
    """What one row of usage is about. `day` is a day in UTC."""

    day: date
    tenant: str
    model: str


@dataclass(slots=True)
class Usage:
    """Counts that only grow. Prompt tokens include cached ones; they count when a request is first scheduled."""

    requests: int = 0
    refused: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0

    def add(self, other: Usage) -> None:
        """Add what another row counts."""
        for field in fields(self):
            setattr(self, field.name, getattr(self, field.name) + getattr(other, field.name))


def today() -> date:
    """The present day, UTC."""
    return datetime.now(UTC).date()


class UsageBook:
    """Counts usage by day, tenant and model. `totals` grow for ever; `take` gives what is new since it was last called.

    Tokens count when they are computed, not when their request ends: what a crash can lose is what was not taken yet.
    Safe from any thread. `day` says which day it is.
    """

    def __init__(self, model: str, day: Callable[[], date] = today) -> None:
        self._model, self._day = model, day
        self._lock = threading.Lock()
        self._tenants: dict[str, tuple[str, int]] = {}
        self._seen: set[str] = set()
        self._new: dict[UsageKey, Usage] = {}
        self._totals: dict[str, Usage] = {}

    def on_events(self, events: Sequence[Event]) -> None:
        """Count what happened in one step."""
        with self._lock:
            day = self._day()
            for event in events:
                match event:
                    case TokenEmitted(request_id=request_id):
                        if known := self._tenants.get(request_id):
                            self._add(day, known[0], Usage(output_tokens=1))
                    case Arrived(request, _):
                        self._tenants[request.id] = request.tenant, request.num_prompt
                    case Admitted(request_id=request_id, num_cached=num_cached, is_first=True):
                        known = self._tenants.get(request_id)
                        if known and request_id not in self._seen:
                            self._seen.add(request_id)
                            self._add(day, known[0], Usage(prompt_tokens=known[1], cached_tokens=num_cached))
                    case Finished(request=request):
                        self._end(request.id)
                        self._add(day, request.tenant, Usage(requests=1))
                    case Rejected(request=request):
                        self._end(request.id)
                        self._add(day, request.tenant, Usage(refused=1))
                    case _:
                        pass

    def refused(self, tenant: str) -> None:
        """Count a request that was refused at the door."""
        with self._lock:
            self._add(self._day(), tenant, Usage(refused=1))

    def totals(self) -> Mapping[str, Usage]:
        """What each tenant used since the start."""
        with self._lock:
            totals: dict[str, Usage] = {}
            for tenant, usage in self._totals.items():
                totals.setdefault(tenant, Usage()).add(usage)
            return totals

    def take(self) -> dict[UsageKey, Usage]:
        """What was counted since the last call. Whoever takes it keeps it, or puts it back."""
        with self._lock:
            new, self._new = self._new, {}
            return new

    def put_back(self, rows: Mapping[UsageKey, Usage]) -> None:
        """What was taken could not be kept: it is new again."""
        with self._lock:
            for key, usage in rows.items():
                self._new.setdefault(key, Usage()).add(usage)

    def _end(self, request_id: str) -> None:
        self._tenants.pop(request_id, None)
        self._seen.discard(request_id)

    def _add(self, day: date, tenant: str, usage: Usage) -> None:
        self._new.setdefault(UsageKey(day, tenant, self._model), Usage()).add(usage)
        self._totals.setdefault(tenant, Usage()).add(usage)
