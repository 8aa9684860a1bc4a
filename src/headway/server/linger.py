"""Refusing a body that is still being sent, so that the sender gets to read why."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

LINGER_S = 5.0
LINGER_BYTES = 16 * 2**20


class LingeringResponse(Response):
    """A whole answer at once, then a bounded patience with the rest of the body before the connection is closed.

    Closing while the client still sends would reset the connection, and the answer might be lost with it.
    """

    async def __call__(self, _: Scope, receive: Receive, send: Send) -> None:
        """Answer, throw away what comes, close."""
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        await send({"type": "http.response.body", "body": self.body, "more_body": True})
        with suppress(TimeoutError):
            async with asyncio.timeout(LINGER_S):
                await _discard(receive)
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _discard(receive: Receive) -> None:
    num_left = LINGER_BYTES
    while num_left > 0:
        message = await receive()
        if message["type"] == "http.disconnect" or not message.get("more_body", False):
            return
        num_left -= len(message["body"])
