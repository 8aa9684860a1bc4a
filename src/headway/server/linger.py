"""Answering who still sends a body, so that the sender gets to read the answer."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from starlette.types import Message, Receive, Send

LINGER_S = 5.0
LINGER_BYTES = 16 * 2**20


class Lingering:
    """One request's messages in both directions. Its answer may go out before its body has come.

    Closing while the client still sends would reset the connection, and the answer might be lost with it. So the answer
    is sent whole at once, but its end waits with a bounded patience for the rest of the body, which is thrown away.
    """

    def __init__(self, receive: Receive, send: Send) -> None:
        self._receive, self._send = receive, send
        self._is_over = False

    async def receive(self) -> Message:
        """The next piece of the body, or the disconnect. Who was waited for in vain is not waited for again."""
        try:
            message = await self._receive()
        except asyncio.CancelledError:
            self._is_over = True
            raise
        if message["type"] == "http.disconnect" or not message.get("more_body", False):
            self._is_over = True
        return message

    async def send(self, message: Message) -> None:
        """Pass on a piece of the answer; the last one when the body has come, or was waited for long enough."""
        is_last = message["type"] == "http.response.body" and not message.get("more_body", False)
        if is_last and not self._is_over:
            await self._send({**message, "more_body": True})
            with suppress(TimeoutError, asyncio.CancelledError):  # cancelled where the server leaves: it has answered
                async with asyncio.timeout(LINGER_S):
                    await self._discard()
            message = {"type": "http.response.body"}
        await self._send(message)

    async def _discard(self) -> None:
        num_left = LINGER_BYTES
        while not self._is_over and num_left > 0:
            num_left -= len((await self.receive()).get("body", b""))
