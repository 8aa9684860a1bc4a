"""What surrounds every endpoint, as plain ASGI: one call per message, no task and no queue of its own."""

from __future__ import annotations

import logging
import time

from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from headway.server.access import Access
from headway.server.bounded import require_small
from headway.server.config import ServerConfig
from headway.server.faults import fault_of, report
from headway.server.linger import Lingering
from headway.server.patience import note_arrival
from headway.server.rates import NAMES
from headway.server.request_id import HEADER, name_request, request_id
from headway.tenancy import House

access = logging.getLogger("headway.access")


def surroundings(config: ServerConfig, house: House) -> list[Middleware]:
    """All of it, outermost first."""
    around = [Middleware(Envelope, root_path=config.root_path, logs_access=config.access_log)]
    if config.allowed_origins:
        around.append(
            Middleware(
                CORSMiddleware,
                allow_origins=config.allowed_origins,
                allow_methods=["*"],
                allow_headers=["*"],
                expose_headers=["X-Request-Id", "Retry-After", *NAMES],
            )
        )
    around.append(Middleware(Access, house=house, config=config))
    return around


class Envelope:
    """Every answer carries its `X-Request-Id`; an exception that nobody handled is a 500 in OpenAI's shape.

    An answer that does not wait for the request's body still reaches its client.

    `root_path` is the prefix that a proxy may have stripped from the path.
    """

    def __init__(self, app: ASGIApp, *, root_path: str, logs_access: bool) -> None:
        self._app, self._root_path, self._logs_access = app, root_path.rstrip("/"), logs_access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on."""
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        name_request(scope)
        note_arrival(scope)
        scope["root_path"] = self._root_path or scope.get("root_path", "")
        line = Lingering(receive, send)
        began, status = time.monotonic(), 0

        async def named(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message.get("headers", ()), (HEADER, request_id(scope).encode())]
            await line.send(message)

        try:
            require_small(scope.get("raw_path") or b"", scope.get("query_string", b""), scope["headers"])
            await self._app(scope, line.receive, named)
        except ClientDisconnect:
            return None
        except Exception as error:
            fault = fault_of(error)
            report(error, fault, request_id(scope))
            if status:
                raise
            await fault.response(scope)(scope, line.receive, named)
        if self._logs_access:
            took_s = time.monotonic() - began
            access.info("%s %s %d %.3f s %s", scope["method"], scope["path"], status, took_s, request_id(scope))
        return None
