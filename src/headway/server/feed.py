"""What the live page is told, twice a second at most, at a bounded share of the processor."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncIterator
from dataclasses import asdict
from typing import Any

import msgspec

from headway.errors import Overloaded
from headway.obs import Watch
from headway.server.access import Caller
from headway.server.served import Served
from headway.tenancy import Tenant

PERIOD_S = 0.5
MOST_SHARE = 0.0025
"""Of one processor, for all readers together: with more to draw, or more readers, pictures come less often."""
MOST_READERS = 16


class Feed:
    """Draws pictures of one engine for its readers. Belongs to the event loop's thread."""

    def __init__(self, served: Served, watch: Watch) -> None:
        self._served, self._watch = served, watch
        self._epoch = secrets.token_hex(4)
        self._num_readers = 0
        self._cost_s = 0.0
        self._drawn_s = 0.0

    def require_room(self) -> None:
        """Raises `Overloaded` where as many read as may."""
        if self._num_readers >= MOST_READERS:
            raise Overloaded(f"{MOST_READERS} live pages are open, as many as may be", retry_after_s=5.0)

    async def events(self, caller: Caller) -> AsyncIterator[bytes]:
        """Server-sent events until the reader leaves or the engine ends."""
        self._num_readers += 1
        try:
            after_step = -1
            while self._served.engine.is_alive:
                event, after_step = self._timed(caller, after_step)
                yield event
                await asyncio.sleep(max(PERIOD_S, self._num_readers * self._cost_s / MOST_SHARE))
        finally:
            self._num_readers -= 1

    @property
    def spent_s(self) -> float:
        """Processor seconds spent on following and drawing since the start."""
        return self._drawn_s + self._watch.live_spent_s

    def _timed(self, caller: Caller, after_step: int) -> tuple[bytes, int]:
        """One event, and the last step in it."""
        began_s = time.thread_time()
        picture = self.picture(caller, after_step)
        event = b"data: " + msgspec.json.encode(picture) + b"\n\n"
        cost_s = time.thread_time() - began_s
        self._drawn_s += cost_s
        self._cost_s += 0.2 * (cost_s - self._cost_s)
        return event, picture["steps"][-1]["step"] if picture["steps"] else after_step

    def picture(self, caller: Caller, after_step: int = -1) -> dict[str, Any]:
        """One picture. Only an admin, or anybody where all callers are one tenant, sees whose requests are whose."""
        house = self._served.accounts.house
        own = None if caller.is_admin or house.is_open else caller.tenant.name
        stats, control = self._served.engine.stats(), self._served.engine.control
        held, books = self._watch.ledger.blocks_held(), self._watch.ledger.books()
        running = house.num_running()
        return self._watch.live.picture(after_step, own) | {
            "epoch": self._epoch,
            "model": self._served.model_names[0],
            "is_ready": self._served.engine.is_ready,
            "kv": {
                "num_blocks": stats.num_blocks,
                "used": stats.num_used_blocks,
                "cached": stats.num_cached_blocks,
                "tenants": {name: num for name, num in held.items() if num and own in (None, name)},
            },
            "queue": {
                "running": stats.num_running,
                "waiting": stats.num_waiting,
                "swapped": stats.num_swapped,
                "tokens": stats.num_queued_tokens,
                "reasons": self._watch.work.waiting(),
            },
            "guardrail_level": stats.guardrail_level,
            "slo": dict(control.admission.guardrails.settings.slo),
            "refused": {cause: num for cause, num in stats.refused.items() if num},
            "ledger": _totals(books.booked, own),
            "tenants": [
                _card(tenant, running.get(name, 0)) for name, tenant in house.tenants.items() if own in (None, name)
            ],
        }


def _totals(booked: dict[str, Any], own: str | None) -> dict[str, int]:
    totals: dict[str, int] = {}
    for tenant, entries in booked.items():
        if own in (None, tenant):
            for entry, num in entries.items():
                totals[entry] = totals.get(entry, 0) + num
    return totals


def _card(tenant: Tenant, num_running: int) -> dict[str, Any]:
    limits = {name: value for name, value in asdict(tenant.limits).items() if value is not None}
    return {
        "name": tenant.name,
        "class": tenant.service_class.value,
        "weight": tenant.weight,
        "running": num_running,
        "kv": asdict(tenant.kv),
        "limits": limits,
    }
