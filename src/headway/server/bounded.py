"""HTTP's own parts kept to a size and a time: a parser buffers and waits for them before any application knows."""

from __future__ import annotations

import asyncio
import uuid
from http import HTTPStatus
from typing import TYPE_CHECKING

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from headway.errors import InvalidRequest
from headway.server.faults import Fault, HeadTooLarge, TooSlow, fault_of

if TYPE_CHECKING:
    from uvicorn._types import ASGI3Application

LAST_WORD_S = 0.02
"""How long an answer under way may take once the client sends nothing more: enough for what is known already."""

MAX_HEAD_BYTES = 64 * 1024
"""Most bytes of a request's line and headers together."""

HEAD_S = 60.0
"""How long a client may take from the first byte of a request, or from connecting, to the end of its headers."""

UNREAD_S = 120.0
"""After how long a client that takes nothing of what was written to it is hung up on."""


class BoundedHttp(HttpToolsProtocol):
    """uvicorn's protocol that hangs up on a head without end. One that did end is measured by `require_small`.

    Nothing is kept for ever for who does not go on: a head must end within `HEAD_S`, what was written must be read
    within `UNREAD_S`, a connection without a request is closed by uvicorn's own limit (a body's is `body.py`'s).

    A client that shuts down its side of the connection counts as gone, as it does for nginx and Go: nobody can tell it
    from one that was closed. It still gets what can be said at once. Where one that sent several requests at once
    leaves, the one under way learns of it too: uvicorn tells only the last that came.
    """

    _num_head: int | None = 0
    _running: RequestResponseCycle | None = None
    _input_timer: asyncio.TimerHandle | None = None
    _unread_timer: asyncio.TimerHandle | None = None

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
        """A head is open from the first byte, and its time runs from before it."""
        super().connection_made(transport)
        self._begin_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Nothing waits for this client any more, and nothing of what it asked for is begun."""
        self._stop_waiting()
        if self._unread_timer is not None:
            self._unread_timer.cancel()
        self.pipeline.clear()
        if (running := self._running) is not None and not running.response_complete:
            running.disconnected = True
            running.message_event.set()
        super().connection_lost(exc)

    def on_message_begin(self) -> None:
        """The next head on the same connection."""
        self._begin_head()
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """What follows is a body, which has its own limits."""
        self._num_head = None
        self._stop_waiting()
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """Nothing more is expected until the next head."""
        self._stop_waiting()
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """A body that nobody wants to read any more may take no longer than a head."""
        super().on_response_complete()
        if self.cycle.response_complete and self.cycle.more_body and not self.transport.is_closing():
            self._wait_for_client()

    def pause_writing(self) -> None:
        """The client is behind with reading."""
        super().pause_writing()
        self._watch_reader(num_before=None)

    def resume_writing(self) -> None:
        """It has caught up."""
        super().resume_writing()
        if self._unread_timer is not None:
            self._unread_timer.cancel()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        self._running = cycle
        super()._start_asgi_task(cycle, app)

    def _begin_head(self) -> None:
        self._num_head = 0
        self._wait_for_client()

    def _wait_for_client(self) -> None:
        self._stop_waiting()
        self._input_timer = self.loop.call_later(HEAD_S, self._judge_wait)

    def _stop_waiting(self) -> None:
        if self._input_timer is not None:
            self._input_timer.cancel()

    def _judge_wait(self) -> None:
        """The time is over; not where nothing could come because an earlier request is still being answered."""
        if self.transport.is_closing():
            return
        if self._running is not None and not self._running.response_complete:
            self._wait_for_client()
        elif self._num_head:
            self._hang_up(fault_of(TooSlow(f"the request's headers have not ended within {HEAD_S:g} s")))
        else:
            self.transport.close()

    def _watch_reader(self, num_before: int | None) -> None:
        """Hang up where nothing was taken since the last look."""
        num_now = self.transport.get_write_buffer_size()
        if num_before is not None and num_now >= num_before:
            self.transport.abort()
            return
        self._unread_timer = self.loop.call_later(UNREAD_S, self._watch_reader, num_now)


def require_small(path: bytes, query: bytes, headers: list[tuple[bytes, bytes]]) -> None:
    """Raise `HeadTooLarge` for a request whose line and headers have more than `MAX_HEAD_BYTES`."""
    if len(path) + len(query) + sum(len(name) + len(value) + 4 for name, value in headers) > MAX_HEAD_BYTES:
        raise _too_large()


def _too_large() -> HeadTooLarge:
    return HeadTooLarge(f"the request's line and headers have more than {MAX_HEAD_BYTES} bytes")
