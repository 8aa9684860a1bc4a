"""HTTP's own parts kept to a size and a time: a parser buffers and waits for them before any application knows."""

from __future__ import annotations

import asyncio
import logging
import re
import uuid
from http import HTTPStatus

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from headway.errors import InvalidRequest
from headway.server.faults import Fault, HeadTooLarge, TooSlow, fault_of
from headway.server.unchunked import Unchunked

logger = logging.getLogger(__name__)

LAST_WORD_S = 0.02
"""How long an answer under way may take once the client sends nothing more: enough for what is known already."""

MAX_HEAD_BYTES = 64 * 1024
"""Most bytes of a request's line and headers together."""

HEAD_S = 60.0
"""How long a client may take from the first byte of a request, or from connecting, to the end of its headers."""

LATER_S = 30.0
"""How much longer a reader is waited for here than by its stream, which knows the request that it gives up."""

_OFFER = re.compile(rb"\r\nupgrade:", re.IGNORECASE)

LOOKS = 5
"""How often a client is looked at within the time in which it must have read something."""


class BoundedHttp(HttpToolsProtocol):
    """uvicorn's protocol that hangs up on a head without end. One that did end is measured by `require_small`.

    Nothing is kept for ever for who does not go on. A head, the first one of a connection too, must end within
    `HEAD_S`; between two requests uvicorn's own limit holds until the client sends something; `body.py` bounds bodies.
    Of what waits to be written, some must be read within `unread_s` (0: no limit), whoever closed the connection.

    A client that shuts down its side of the connection counts as gone, as it does for nginx and Go: nobody can tell it
    from one that was closed. It still gets what can be said at once. Where one that sent several requests at once
    leaves, the one under way learns of it too: uvicorn tells only the last that came.
    """

    unread_s = 0.0
    _verdict: Fault | None = None
    _num_head: int | None = 0
    _running: RequestResponseCycle | None = None
    _input_timer: asyncio.TimerHandle | None = None
    _unread_timer: asyncio.TimerHandle | None = None
    _num_unread = 0
    _unread_since_s = 0.0

    def data_received(self, data: bytes) -> None:
        """Parse, and count while the head is still open. After an answer what comes need not be one: empty lines."""
        if self._verdict is not None:
            return
        was_open = self._num_head is not None
        super().data_received(_without_offer(data) if was_open or not self.cycle.more_body else data)
        if self.transport.is_closing():
            return
        if was_open and self._num_head is not None:
            self._num_head += len(data)
            if self._num_head > MAX_HEAD_BYTES:
                self._refuse(fault_of(_too_large()))
        elif self._input_timer is None and not self._is_answering:
            self._wait_for_client()

    def send_400_response(self, msg: str) -> None:
        """What cannot be parsed is told so in the shape of every other error."""
        self._refuse(fault_of(InvalidRequest(f"this is no HTTP/1.1 request: {msg}")))

    def _refuse(self, fault: Fault) -> None:
        """Hang up, once the whole requests that came before are answered. What comes until then is not read."""
        cycle = self.cycle
        if not self._is_answering or self._is_half_sent:
            self._hang_up(fault)
        elif cycle is self._running and cycle.more_body:
            self.transport.close()  # its own body is broken, and its answer has begun
        else:
            if cycle.more_body:
                self.pipeline.popleft()
            self._verdict = fault

    def _hang_up(self, fault: Fault) -> None:
        """Answer what never became a whole request, and close."""
        name = uuid.uuid4().hex
        body, status = fault.encode(name), HTTPStatus(fault.status)
        head = f"HTTP/1.1 {status.value} {status.phrase}\r\nconnection: close\r\nx-request-id: {name}\r\n"
        kind = f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
        self.transport.write(head.encode() + kind.encode() + body)
        self.transport.close()

    def eof_received(self) -> bool:  # type: ignore[override]  # asyncio asks whether to keep the connection open
        """No more will be sent. An answer under way has a moment left; then the connection is closed."""
        running = self._running
        if running is None or running.response_complete or running.more_body or self.transport.is_closing():
            return False
        self.loop.call_later(LAST_WORD_S, self.transport.close)
        return True

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        """A head is open from the first byte, and its time runs from before it."""
        super().connection_made(transport)
        self._begin_head()
        if self.unread_s:
            self._watch_reader()

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
        has_to_wait = self._is_answering
        super().on_headers_complete()
        if self.scope["http_version"] == "1.0":
            self.cycle.__class__ = Unchunked  # nothing of it has run yet
        if not has_to_wait:
            self._running = self.cycle

    def on_message_complete(self) -> None:
        """Nothing more is expected until the next head."""
        self._stop_waiting()
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """The next in turn. A body that nobody wants to read any more may take no longer than a head."""
        following = self.pipeline[-1][0] if self.pipeline else None
        super().on_response_complete()
        if self.transport.is_closing():
            return
        if following is not None:
            self._running = following
        elif self._verdict is not None:
            self._hang_up(self._verdict)
        elif self.cycle.more_body:
            self._wait_for_client()

    def resume_writing(self) -> None:
        """The client has read, though more may have been written since."""
        super().resume_writing()
        self._num_unread = 0

    @property
    def _is_answering(self) -> bool:
        return self._running is not None and not self._running.response_complete

    @property
    def _is_half_sent(self) -> bool:
        """Whether what is being answered is the last that came, not yet whole, and nothing was said to it."""
        cycle = self.cycle
        return self._running is cycle and cycle.more_body and not cycle.response_started

    def _begin_head(self) -> None:
        self._num_head = 0
        self._wait_for_client()

    def _wait_for_client(self) -> None:
        self._stop_waiting()
        self._input_timer = self.loop.call_later(HEAD_S, self._judge_wait)

    def _stop_waiting(self) -> None:
        if self._input_timer is not None:
            self._input_timer.cancel()
            self._input_timer = None

    def _judge_wait(self) -> None:
        """The time is over; not where nothing could come because an earlier request is still being answered."""
        if self.transport.is_closing():
            return
        if self._is_answering:
            self._wait_for_client()
        elif self._num_head:
            self._hang_up(fault_of(TooSlow(f"the request's headers have not ended within {HEAD_S:g} s")))
        else:
            self.transport.close()

    def _watch_reader(self) -> None:
        """Hang up where nothing was taken for too long of what no more is added to.

        Looking now and then sees every way to close: a transport that is to be closed waits for its reader without end.
        """
        is_stuck = self.flow.write_paused or self.transport.is_closing()
        num_now = self.transport.get_write_buffer_size() if is_stuck else 0
        if not 0 < self._num_unread <= num_now:
            self._num_unread, self._unread_since_s = num_now, self.loop.time()
        elif self.loop.time() - self._unread_since_s >= self.unread_s:
            logger.warning("a client has read nothing for %g s and is hung up on", self.unread_s)
            self.transport.abort()
            return
        self._unread_timer = self.loop.call_later(self.unread_s / LOOKS, self._watch_reader)


def _without_offer(data: bytes) -> bytes:
    """What begins with a head or within one, without its offer to change protocols, which nobody takes up here.

    The parser would take a body behind it for the new protocol's, and the request for empty: Java's HttpClient offers
    HTTP/2 with whatever it sends first.
    """
    head, end, rest = data.partition(b"\r\n\r\n")
    return _OFFER.sub(b"\r\nx-not-upgraded:", head) + end + rest if _OFFER.search(head) else data


def bounded_http(stall_timeout_s: float) -> type[BoundedHttp]:
    """The protocol for a server whose streams give up a reader after that many seconds (0: never)."""

    class Http(BoundedHttp):
        unread_s = stall_timeout_s + LATER_S if stall_timeout_s else 0.0

    return Http


def require_small(path: bytes, query: bytes, headers: list[tuple[bytes, bytes]]) -> None:
    """Raise `HeadTooLarge` for a request whose line and headers have more than `MAX_HEAD_BYTES`."""
    if len(path) + len(query) + sum(len(name) + len(value) + 4 for name, value in headers) > MAX_HEAD_BYTES:
        raise _too_large()


def _too_large() -> HeadTooLarge:
    return HeadTooLarge(f"the request's line and headers have more than {MAX_HEAD_BYTES} bytes")
