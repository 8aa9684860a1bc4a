"""Running the server: from an open port to an orderly end."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import resource
import signal
import socket
from collections.abc import Callable, Generator

import uvicorn
from fastapi import FastAPI

from headway.errors import BadSetting
from headway.server.accounts import Accounts
from headway.server.app import create_app
from headway.server.bounded import bounded_http
from headway.server.config import ServerConfig
from headway.server.port import ServedEngine
from headway.server.routes_tenants import reload_tenants

logger = logging.getLogger(__name__)

_LAST_WORDS_S = 5  # for answers to be written once the engine has ended every request
_IDLE_CONNECTION_S = 75
_MOST_FILES = 65_536


def bind(config: ServerConfig) -> socket.socket:
    """A listening socket, so that a taken port is known before a model is loaded. Raises `BadSetting`.

    Port 0 takes any free one: ask the socket for it.
    """
    try:
        family = socket.getaddrinfo(config.host, config.port, type=socket.SOCK_STREAM)[0][0]
        # `create_server` sets SO_REUSEADDR: a restart does not wait for the last run's connections to be forgotten.
        listener = socket.create_server((config.host, config.port), family=family, backlog=2048)
    except OSError as error:
        why = str(error.strerror or error).partition(" (while")[0]  # which address is said already
        raise BadSetting(
            f"cannot listen on {config.host}:{config.port}: {why}; choose another --host or --port"
        ) from None
    # Connections inherit it. asyncio sets it only on sockets that were made with the protocol's number, which these are
    # not: an answer in two pieces would wait 40 ms for the client's delayed acknowledgement of the first.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener


def hold_reloads(config: ServerConfig) -> None:
    """From here on a SIGHUP asks for a reload and does not end the process; called before anything is loaded.

    The tenants file is read when the model is there: who asks earlier has what they asked for.
    """
    if config.tenants is not None:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)


def serve(
    engine: ServedEngine,
    config: ServerConfig,
    *,
    listener: socket.socket | None = None,
    on_ready: Callable[[str], None] | None = None,
    quit_now: Callable[[int], object] = os._exit,
) -> None:
    """Serve until SIGINT or SIGTERM, then end in order; must be called from the main thread.

    The first signal turns `/ready` to 503; `drain_delay_s` later, when balancers have seen it, nobody new is taken and
    running requests finish within `shutdown_timeout_s`; what is left is aborted with its finish reason. A second one
    calls `quit_now` at once. `on_ready` is told the URL. `listener` comes from `bind`; without it, this binds. The
    engine is started here and closed at the end. SIGHUP reads the tenants file again.
    """
    allow_connections()
    sock = listener or bind(config)
    accounts = Accounts.open(config, (config.served_model_names or (engine.model_name,))[0])
    app = create_app(engine, config, accounts)
    web = _Web(_uvicorn_config(app, config))
    with asyncio.Runner(loop_factory=web.config.get_loop_factory()) as runner:
        if accounts.house.path is not None:
            runner.get_loop().add_signal_handler(signal.SIGHUP, reload_tenants, accounts.house)
        runner.run(_run(Leave(engine, config, app), web, sock, on_ready, quit_now))


def allow_connections() -> None:
    """As many open files as this process may have, within reason: each connection is one, 1,024 is the usual limit.

    Beyond the limit clients would be cut off without a word in the log.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = _MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, _MOST_FILES)
    if soft != resource.RLIM_INFINITY and soft < most:
        with contextlib.suppress(ValueError, OSError):  # a system with a limit of its own below that: it stays as it is
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


class Leave:
    """An orderly end: first said, then begun, then waited for."""

    def __init__(self, engine: ServedEngine, config: ServerConfig, app: FastAPI) -> None:
        self.engine, self._config, self._app = engine, config, app
        self.wanted = asyncio.Event()

    def want(self) -> None:
        """From here on `/ready` says 503, before anything else happens."""
        self._app.state.is_leaving = True
        patience_s = self._config.drain_delay_s + self._config.shutdown_timeout_s
        logger.info("stopping: what runs has %g s to end; a second signal ends it now", patience_s)
        if not self._config.drain_delay_s:
            self.engine.begin_drain()
        self.wanted.set()

    async def carry_out(self) -> None:
        """Serve on for the delay, then let what runs finish, end the rest, and free the engine."""
        if self.wanted.is_set():
            await asyncio.sleep(self._config.drain_delay_s)
        self.engine.begin_drain()
        await self.engine.drained(self._config.shutdown_timeout_s)
        await self.engine.close()


class _Web(uvicorn.Server):
    """uvicorn without its signal handlers: an orderly end is ours to run."""

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield


def _uvicorn_config(app: FastAPI, config: ServerConfig) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http=bounded_http(config.stall_timeout_s),
        log_config=None,
        log_level="warning",
        access_log=False,
        ws="none",
        lifespan="on",
        server_header=False,
        timeout_keep_alive=_IDLE_CONNECTION_S,
        timeout_graceful_shutdown=_LAST_WORDS_S,
    )


async def _run(
    leave: Leave,
    web: _Web,
    sock: socket.socket,
    on_ready: Callable[[str], None] | None,
    quit_now: Callable[[int], object],
) -> None:
    leave.engine.start()

    def on_signal(number: int) -> None:
        if leave.wanted.is_set():
            quit_now(128 + number)
        leave.want()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, on_signal, number)
    serving = asyncio.create_task(web.serve([sock]))
    if on_ready is not None:
        on_ready(_url(sock))
    leaving = asyncio.create_task(leave.wanted.wait())
    try:
        await asyncio.wait({serving, leaving}, return_when=asyncio.FIRST_COMPLETED)
        # The port stays open meanwhile, to tell balancers and clients that this server is leaving.
        await leave.carry_out()
    finally:
        leaving.cancel()
        web.should_exit = True
        await serving


def _url(sock: socket.socket) -> str:
    host, port = sock.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
