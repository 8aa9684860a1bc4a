"""What surrounds every endpoint, as plain ASGI: one call per message, no task and no queue of its own."""

from __future__ import annotations

import hashlib
import hmac
import logging
import time
from collections.abc import Sequence

from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from headway.server.faults import Unauthorized, fault_of, report
from headway.server.request_id import HEADER, name_request, request_id

access = logging.getLogger("headway.access")

OPEN_PATHS = frozenset({"/health", "/ready", "/metrics"})


class Envelope:
    """Every answer carries its `X-Request-Id`; an exception that nobody handled is a 500 in OpenAI's shape.

    `root_path` is the prefix that a proxy may have stripped from the path.
    """

    def __init__(self, app: ASGIApp, *, root_path: str, logs_access: bool) -> None:
        self._app, self._root_path, self._logs_access = app, root_path.rstrip("/"), logs_access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on."""
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        name_request(scope)
        scope["root_path"] = self._root_path or scope.get("root_path", "")
        began, status = time.monotonic(), 0

        async def named(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message.get("headers", ()), (HEADER, request_id(scope).encode())]
            await send(message)

        try:
            await self._app(scope, receive, named)
        except ClientDisconnect:
            return None
        except Exception as error:
            fault = fault_of(error)
            report(error, fault)
            if status:
                raise
            await fault.response()(scope, receive, named)
        if self._logs_access:
            took_s = time.monotonic() - began
            access.info("%s %s %d %.3f s %s", scope["method"], scope["path"], status, took_s, request_id(scope))
        return None


class ApiKeys:
    """Lets in those who show one of the keys, and everybody to health, readiness and metrics."""

    def __init__(self, app: ASGIApp, *, keys: Sequence[str], root_path: str) -> None:
        self._app, self._root_path = app, root_path.rstrip("/")
        self._digests = [_digest(key.encode()) for key in keys]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or answer 401."""
        if scope["type"] != "http" or self._is_open(scope["path"]) or self._knows(scope):
            return await self._app(scope, receive, send)
        fault = fault_of(Unauthorized("no valid API key; send one as 'Authorization: Bearer KEY'"))
        return await fault.response()(scope, receive, send)

    def _is_open(self, path: str) -> bool:
        return path in OPEN_PATHS or path.removeprefix(self._root_path) in OPEN_PATHS

    def _knows(self, scope: Scope) -> bool:
        shown = next((value for name, value in scope["headers"] if name == b"authorization"), b"")
        scheme, _, key = shown.partition(b" ")
        digest = _digest(key.strip())
        # Every key is compared, each in constant time: how long it takes tells nothing about any of them.
        matches = [hmac.compare_digest(digest, known) for known in self._digests]
        return scheme.lower() == b"bearer" and any(matches)


def _digest(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()
