"""Connections for a load test: as many as there are requests at a time, each kept for the next request.

httpx's own pool looks at all of its connections for each request, and at some hundreds that is most of the client's
time. Here each connection is a transport of its own, and the one that was used last is taken first.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx

ONE = httpx.Limits(max_connections=1, max_keepalive_connections=1, keepalive_expiry=300.0)


class Lanes(httpx.AsyncBaseTransport):
    """A transport without a limit on connections, whose cost per request does not grow with their number."""

    def __init__(self) -> None:
        self._tls = httpx.create_ssl_context()  # costly to make, so made once for all
        self._idle: list[httpx.AsyncHTTPTransport] = []
        self._busy: set[httpx.AsyncHTTPTransport] = set()

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request on an idle connection, on a new one where none is."""
        lane = self._idle.pop() if self._idle else httpx.AsyncHTTPTransport(verify=self._tls, limits=ONE)
        self._busy.add(lane)
        try:
            answer = await lane.handle_async_request(request)
        except BaseException:
            self._give_back(lane)
            raise
        assert isinstance(answer.stream, httpx.AsyncByteStream), "an asynchronous transport gives such a stream"
        answer.stream = _Returning(answer.stream, self, lane)
        return answer

    async def aclose(self) -> None:
        """Close all connections."""
        lanes = [*self._idle, *self._busy]
        self._idle.clear()
        self._busy.clear()
        for lane in lanes:
            await lane.aclose()

    def _give_back(self, lane: httpx.AsyncHTTPTransport) -> None:
        if lane in self._busy:
            self._busy.remove(lane)
            self._idle.append(lane)

    async def end(self, stream: httpx.AsyncByteStream, lane: httpx.AsyncHTTPTransport) -> None:
        """A stream of a lane is done with."""
        try:
            await stream.aclose()
        finally:
            self._give_back(lane)


class _Returning(httpx.AsyncByteStream):
    """A body that gives its connection back when it is closed."""

    def __init__(self, stream: httpx.AsyncByteStream, lanes: Lanes, lane: httpx.AsyncHTTPTransport) -> None:
        self._stream, self._lanes, self._lane = stream, lanes, lane

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for part in self._stream:
            yield part

    async def aclose(self) -> None:
        """Close the body; the connection is kept if it was read to its end."""
        await self._lanes.end(self._stream, self._lane)
