"""How long a client waits: its deadlines, counted from the moment its request came."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from starlette.types import Scope

from headway.core import Cause
from headway.errors import InvalidRequest, Overloaded

HEADER = b"x-request-timeout-ms"
MOST_MS = 86_400_000.0
"""A day; nobody waits longer, and moments stay exact."""

_ARRIVED = "headway.arrived_s"


@dataclass(frozen=True, slots=True)
class Patience:
    """Seconds that are left for the whole answer and for its first token, and the event loop's time of the former."""

    timeout_s: float | None = None
    ttft_s: float | None = None
    ends_at: float | None = None


def note_arrival(scope: Scope) -> None:
    """Remember when a request came; deadlines count from there, reading and tokenizing included."""
    scope[_ARRIVED] = asyncio.get_running_loop().time()


def patience_of(scope: Scope, deadline_ms: float | None, ttft_deadline_ms: float | None) -> Patience:
    """What the header and the body's fields leave from now on; of two deadlines the earlier holds. May be negative.

    Raises `InvalidRequest` for what is no positive number of milliseconds.
    """
    asked = [checked("deadline_ms", deadline_ms), _header(scope)]
    whole_ms = min((value for value in asked if value is not None), default=None)
    first_ms = checked("ttft_deadline_ms", ttft_deadline_ms)
    passed_s = asyncio.get_running_loop().time() - scope[_ARRIVED]
    return Patience(
        timeout_s=None if whole_ms is None else whole_ms / 1000.0 - passed_s,
        ttft_s=None if first_ms is None else first_ms / 1000.0 - passed_s,
        ends_at=None if whole_ms is None else scope[_ARRIVED] + whole_ms / 1000.0,
    )


@asynccontextmanager
async def within_header(scope: Scope) -> AsyncIterator[None]:
    """Bound what happens inside, before the body is known, by the deadline of the header. Raises `Overloaded`."""
    whole_ms = _header(scope)
    try:
        async with asyncio.timeout_at(None if whole_ms is None else scope[_ARRIVED] + whole_ms / 1000.0):
            yield
    except TimeoutError:
        raise too_late() from None


def too_late() -> Overloaded:
    """The answer where a deadline came before the first token."""
    return Overloaded("the request's deadline came before its first token", cause=Cause.DEADLINE)


def checked(name: str, value: float | None) -> float | None:
    """A positive number of milliseconds, or nothing. Raises `InvalidRequest`."""
    if value is not None and not (math.isfinite(value) and 0 < value <= MOST_MS):
        raise InvalidRequest(f"{name} is {value:g}; it must be above 0 and at most {MOST_MS:g} ms", param=name)
    return value


def _header(scope: Scope) -> float | None:
    text = next((value for name, value in scope["headers"] if name == HEADER), None)
    if text is None:
        return None
    try:
        value = float(text.replace(b"_", b"?").decode("ascii"))  # 1_000 is a number to Python alone
    except ValueError:
        raise InvalidRequest("the header X-Request-Timeout-Ms is no number of milliseconds") from None
    return checked("X-Request-Timeout-Ms", value)
