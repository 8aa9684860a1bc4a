"""Answers over HTTP: server-sent events, or one document. Either way the work ends when the client leaves."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Self

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from headway.server.config import ServerConfig
from headway.server.disconnect import Client
from headway.server.faults import Fault, fault_of, report
from headway.server.job import Collected, Job
from headway.server.reply import Reply
from headway.server.request_id import request_id
from headway.server.wire import DONE, KEEP_ALIVE

logger = logging.getLogger(__name__)

_SSE_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),  # nginx would hold events back
]


class EventStream(Response):
    """Streams a job's deltas as they come, then the closing events and `[DONE]`.

    The status line is sent with the first event: what goes wrong before it (a request refused while it waited) still
    gets its proper status. A failure after it is an error event in OpenAI's shape, then `[DONE]`.
    """

    def __init__(self, job: Job, reply: Reply, config: ServerConfig) -> None:
        super().__init__(media_type="text/event-stream")
        self._job, self._reply, self._config = job, reply, config

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Run the whole stream; aborts the job whatever way it ends."""
        try:
            failed = None
            line = _Line(send, self._config, self._job.abort, request_id(scope))
            async with Client(receive, self._job.abort) as client, line:
                failed = await self._write(line, client)
            if failed is not None:
                await failed.response(scope)(scope, receive, send)
        finally:
            self._job.abort()

    async def _write(self, line: _Line, client: Client) -> Fault | None:
        """Everything from the first event to the last. Returns what went wrong if no event was sent yet."""
        try:
            async for index, delta in self._job.deltas():
                if not client.has_left and (events := self._reply.chunk(index, delta)):
                    await line.write(events)
            await line.end(self._reply.closing(self._job.usage) + DONE)
        except Exception as error:  # noqa: BLE001 - whatever it is, the client is told and the log has it
            fault = fault_of(error)
            report(error, fault, line.name)
            if not line.is_open:
                return fault
            await line.end(b"data: " + fault.encode(line.name) + b"\n\n" + DONE)
        return None


class _Line:
    """The connection to one reader: opened by the first write, kept awake by comments, given up when stuck."""

    def __init__(self, send: Send, config: ServerConfig, on_stall: Callable[[], None], name: str) -> None:
        self.is_open = False
        self.name = name
        self._send, self._on_stall = send, on_stall
        self._idle_s, self._stall_s = config.keep_alive_s, config.stall_timeout_s
        self._now = asyncio.get_running_loop().time
        self._wrote_at = self._now()
        self._lock = asyncio.Lock()
        self._writer = asyncio.current_task()
        self._watch: asyncio.Task[None] | None = None
        self._is_stuck = False

    async def __aenter__(self) -> Self:
        if waits := [seconds for seconds in (self._idle_s, self._stall_s) if seconds > 0]:
            self._watch = asyncio.create_task(self._keep_watch(min(waits)))
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> bool:
        if self._watch is not None:
            self._watch.cancel()
            await asyncio.gather(self._watch, return_exceptions=True)
        if not (self._is_stuck and kind is asyncio.CancelledError):
            return False
        if self._writer is not None:
            self._writer.uncancel()
        return True

    async def write(self, events: bytes) -> None:
        """Send whole events. Waits while the reader's buffer is full."""
        await self._put({"type": "http.response.body", "body": events, "more_body": True})

    async def end(self, events: bytes) -> None:
        """Send the last events and close the response."""
        await self._put({"type": "http.response.body", "body": events, "more_body": False})

    async def _put(self, message: dict[str, object]) -> None:
        async with self._lock:
            self._wrote_at = self._now()
            if not self.is_open:
                self.is_open = True
                await self._send({"type": "http.response.start", "status": 200, "headers": list(_SSE_HEADERS)})
            await self._send(message)
            self._wrote_at = self._now()

    async def _keep_watch(self, period_s: float) -> None:
        while True:
            quiet_s = self._now() - self._wrote_at
            if self._lock.locked():
                if self._stall_s and quiet_s >= self._stall_s:
                    return self._give_up()
            elif self._idle_s and quiet_s >= self._idle_s:
                try:
                    await asyncio.wait_for(self.write(KEEP_ALIVE), self._stall_s or None)
                except TimeoutError:
                    return self._give_up()
                quiet_s = 0.0
            left_s = (self._stall_s if self._lock.locked() else self._idle_s) - quiet_s
            await asyncio.sleep(min(period_s, left_s) if left_s > 0.0 else period_s)

    def _give_up(self) -> None:
        logger.warning("request %s: its client has read nothing for %g s; it is aborted", self.name, self._stall_s)
        self._is_stuck = True
        self._on_stall()
        if self._writer is not None:
            self._writer.cancel()


async def answer_whole(request: Request, job: Job, word: Callable[[list[Collected]], bytes]) -> Response:
    """Collect all choices and answer with one JSON document. The body of `request` must have been read."""
    try:
        async with Client(request.receive, job.abort) as client:
            choices = await job.collect()
    finally:
        job.abort()
    if client.has_left:
        return Response(status_code=499)  # nobody reads it
    return Response(word(choices), media_type="application/json")
