"""HTTP's own parts kept to a size: a parser buffers them before any application sees a request."""

from __future__ import annotations

import asyncio
import uuid
from http import HTTPStatus

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from headway.errors import InvalidRequest
from headway.server.faults import Fault, HeadTooLarge, fault_of

LAST_WORD_S = 0.02
"""How long an answer under way may take once the client sends nothing more: enough for what is known already."""

MAX_HEAD_BYTES = 64 * 1024
"""Most bytes of a request's line and headers together."""


class BoundedHttp(HttpToolsProtocol):
    """uvicorn's protocol that hangs up on a head without end. One that did end is measured by `require_small`.

    A client that shuts down its side of the connection counts as gone, as it does for nginx and Go: nobody can tell it
    from one that was closed. It still gets what can be said at once.
    """

    _num_head: int | None = 0

    def data_received(self, data: bytes) -> None:
        """Parse, and count while the head is still open."""
        was_open = self._num_head is not None
        super().data_received(data)
        if self._num_head is None or not was_open:
            return
        self._num_head += len(data)
        if self._num_head > MAX_HEAD_BYTES and not self.transport.is_closing():
            self._hang_up(fault_of(_too_large()))

    def send_400_response(self, msg: str) -> None:
        """What cannot be parsed is told so in the shape of every other error."""
        self._hang_up(fault_of(InvalidRequest(f"this is no HTTP/1.1 request: {msg}")))

    def _hang_up(self, fault: Fault) -> None:
        """Answer what never became a request, and close."""
        name = uuid.uuid4().hex
        body, status = fault.encode(name), HTTPStatus(fault.status)
        head = f"HTTP/1.1 {status.value} {status.phrase}\r\nconnection: close\r\nx-request-id: {name}\r\n"
        kind = f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
        self.transport.write(head.encode() + kind.encode() + body)
        self.transport.close()

    def eof_received(self) -> bool:  # type: ignore[override]  # asyncio asks whether to keep the connection open
        """No more will be sent. An answer under way has a moment left; then the connection is closed."""
        cycle = self.cycle
        if cycle is None or cycle.response_complete or cycle.more_body or self.transport.is_closing():
            return False
        self.loop.call_later(LAST_WORD_S, self.transport.close)
        return True

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        """A head is open from the first byte."""
        self._num_head = 0
        super().connection_made(transport)

    def on_message_begin(self) -> None:
        """The next head on the same connection."""
        self._num_head = 0
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """What follows is a body, which has its own limit."""
        self._num_head = None
        super().on_headers_complete()


def require_small(path: bytes, query: bytes, headers: list[tuple[bytes, bytes]]) -> None:
    """Raise `HeadTooLarge` for a request whose line and headers have more than `MAX_HEAD_BYTES`."""
    if len(path) + len(query) + sum(len(name) + len(value) + 4 for name, value in headers) > MAX_HEAD_BYTES:
        raise _too_large()


def _too_large() -> HeadTooLarge:
    return HeadTooLarge(f"the request's line and headers have more than {MAX_HEAD_BYTES} bytes")
