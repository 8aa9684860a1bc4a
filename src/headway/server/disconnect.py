"""A client that goes away is noticed at once, whether or not anything is being written to it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Self

from starlette.types import Receive


class Client:
    """Within `async with`, calls `on_leave` as soon as the connection is closed by the other side.

    The body must have been read before: from then on the server has only the disconnect to report.
    """

    def __init__(self, receive: Receive, on_leave: Callable[[], None]) -> None:
        self.has_left = False
        self._receive, self._on_leave = receive, on_leave
        self._watch: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._watch = asyncio.create_task(self._wait())
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._watch is not None, "left before it was entered"
        self._watch.cancel()
        await asyncio.gather(self._watch, return_exceptions=True)

    async def _wait(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self.has_left = True
        self._on_leave()
