"""The application behind a real socket, in a thread of its own, for tests that need a connection to break."""

import asyncio
import contextlib
import socket
import threading

import uvicorn

from headway.server import ServerConfig, create_app
from headway.server.bounded import bounded_http
from headway.server.serve import bind


class PromptWeb(uvicorn.Server):
    """uvicorn that ends when it is told to, and does not only look every tenth of a second whether it should."""

    def __init__(self, config):
        super().__init__(config)
        self.leave = asyncio.Event()

    async def main_loop(self):
        await self.on_tick(0)
        await self.leave.wait()


class LiveServer:
    """uvicorn on a free port. The engine lives on its loop: touch it by `call`."""

    run = staticmethod(asyncio.run)

    def __init__(self, engine, config):
        self.engine = engine
        self.sock = bind(ServerConfig(port=0))
        self.host, self.port = self.sock.getsockname()[:2]
        self.url = f"http://{self.host}:{self.port}"
        web = uvicorn.Config(
            create_app(engine, config),
            http=bounded_http(config.stall_timeout_s),
            log_config=None,
            log_level="critical",
            ws="none",
        )
        self._web = PromptWeb(web)
        self.loop = None
        self._up = threading.Event()
        self._thread = threading.Thread(target=self._run, name="live-server")

    def _run(self):
        async def main():
            self.loop = asyncio.get_running_loop()
            self.engine.start()
            self._up.set()
            await self._web.serve([self.sock])
            await self.engine.close()

        self.run(main())

    def call(self, function, *args):
        """Run `function` on the server's loop and return its result."""

        async def on_loop():
            return function(*args)

        return asyncio.run_coroutine_threadsafe(on_loop(), self.loop).result(timeout=10)

    def until(self, condition, timeout_s=5.0):
        """Wait until `condition()`, looked at on the server's loop between its turns, is true."""

        async def look():
            while not condition():  # noqa: ASYNC110 - any condition, not only one that tells of its change
                await asyncio.sleep(0.005)

        asyncio.run_coroutine_threadsafe(asyncio.wait_for(look(), timeout_s), self.loop).result(timeout_s + 5)

    @contextlib.contextmanager
    def standing_still(self):
        """Its loop makes no turn: whatever pauses this thread, what is sent here is there when time begins to run."""
        stands, may_go_on = threading.Event(), threading.Event()
        self.loop.call_soon_threadsafe(lambda: stands.set() or may_go_on.wait(30))
        assert stands.wait(10), "the server's loop hangs"
        try:
            yield
        finally:
            may_go_on.set()

    @property
    def num_connections(self):
        return len(self._web.server_state.connections)

    def open_socket(self):
        """A plain connection to write HTTP by hand."""
        return socket.create_connection((self.host, self.port), timeout=10)

    def __enter__(self):
        self._thread.start()
        assert self._up.wait(10), "the server did not start"
        return self

    def __exit__(self, *_):
        self.call(self.engine.begin_drain)
        asyncio.run_coroutine_threadsafe(self.engine.close(), self.loop).result(10)
        self.call(self._web.leave.set)
        self._thread.join(20)
        assert not self._thread.is_alive(), "the server did not end"


@contextlib.contextmanager
def live(engine, **settings):
    with LiveServer(engine, ServerConfig(**settings)) as server:
        yield server
