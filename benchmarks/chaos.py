"""Chaos: faults injected into a running server; what must go on goes on.

    python benchmarks/chaos.py [--model FILE] [--executor NAME] [--rounds N]

The test hook: the server process (`--serve`) runs the real server around an executor that looks, before each step, for
orders in a file: `raise-named` breaks one step and names its first sequence, `raise` breaks one without a name,
`hang SECONDS` makes one last that long, `disk-full` lets the process write no file any more. Each scenario prints
whether what must hold holds; the exit status is 0 when all do.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import logging
import os
import random
import resource
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx

from headway.cli.bench_options import default_executor
from headway.core import Batch
from headway.engine import AdmissionLimits, AsyncLLM, EngineConfig, Guarding
from headway.engine.build import build_engine
from headway.errors import ExecutorFault
from headway.executor.base import Executor, Pending
from headway.server import ServerConfig
from headway.server import serve as serve_http

STEP_TIMEOUT_S = 1.0
NUM_VANISHING = 60
BODY = {"prompt": [5, 6, 7, 8], "max_tokens": 24, "ignore_eos": True, "temperature": 0}


class Faults:
    """An executor that obeys a file of orders, and otherwise does what the one inside it does."""

    def __init__(self, inner: Executor, orders: Path) -> None:
        self._inner, self._orders = inner, orders

    def launch(self, batch: Batch) -> Pending:
        """Run a step, or break it."""
        if self._orders.exists():
            order, _, value = self._orders.read_text(encoding="utf-8").partition(" ")
            self._orders.unlink()
            match order:
                case "raise-named":
                    raise ExecutorFault("broken on purpose", seq_ids=(batch.lanes[0].seq_id,))
                case "raise":
                    raise ExecutorFault("broken on purpose")
                case "hang":
                    time.sleep(float(value))
                case "disk-full":
                    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
        return self._inner.launch(batch)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever the executor has
        return getattr(self._inner, name)


def serve(options: argparse.Namespace) -> None:
    """The server's side: the real one around an executor with faults."""
    logging.basicConfig(level="CRITICAL")
    engine = build_engine(EngineConfig(model=options.model, executor=options.executor, num_blocks=256))
    engine.core.executor = Faults(engine.core.executor, Path(options.orders))
    llm = AsyncLLM(engine=engine, guarding=Guarding(limits=AdmissionLimits(step_timeout_s=STEP_TIMEOUT_S)))
    config = ServerConfig(port=options.port, shutdown_timeout_s=2.0, usage_store=f"sqlite:///{options.usage}")
    serve_http(llm, config)


class Server:
    """The process under test."""

    def __init__(self, options: argparse.Namespace, folder: Path) -> None:
        self._options, self._orders, self.usage = options, folder / "orders", folder / "usage.sqlite"
        with socket.create_server(("127.0.0.1", 0)) as sock:
            self.port = sock.getsockname()[1]
        self.http = httpx.AsyncClient(base_url=f"http://127.0.0.1:{self.port}", timeout=60)
        self.process: subprocess.Popen[bytes] | None = None

    def _spawn(self, words: list[str]) -> None:
        self.process = subprocess.Popen([sys.executable, __file__, *words])  # noqa: S603 - this very file

    async def start(self) -> None:
        """Start it, and wait until it is ready."""
        words = ["--serve", "--port", str(self.port), "--orders", str(self._orders), "--usage", str(self.usage)]
        words += [
            "--executor",
            self._options.executor,
            *(["--model", self._options.model] if self._options.model else []),
        ]
        self._spawn(words)
        for _ in range(1200):
            with contextlib.suppress(httpx.HTTPError):
                if (await self.http.get("/ready")).status_code == 200:
                    return
            assert self.process is not None
            assert self.process.poll() is None, "the server did not start"
            await asyncio.sleep(0.05)
        raise AssertionError("the server was not ready within a minute")

    def order(self, words: str) -> None:
        """Let the next step go wrong."""
        self._orders.with_suffix(".new").write_text(words, encoding="utf-8")
        self._orders.with_suffix(".new").rename(self._orders)

    async def ask(self, **more: object) -> str:
        """One request to its end: its finish reason, or the status of its refusal."""
        answer = await self.http.post("/v1/completions", json=BODY | more)
        return str(answer.json()["choices"][0]["finish_reason"] if answer.status_code == 200 else answer.status_code)

    async def is_idle(self) -> bool:
        """Whether nobody is inside within ten seconds, no block is used, and the ledger adds up."""
        for _ in range(200):
            if not (await self.http.get("/load")).json()["server_load"]:
                page = (await self.http.get("/metrics")).text
                return all(
                    f"\nheadway:{line} 0.0" in page for line in ('kv_blocks{state="used"}', "token_ledger_error")
                )
            await asyncio.sleep(0.05)
        return False

    async def end(self, number: int) -> int:
        """Send a signal and wait; its exit status."""
        assert self.process is not None
        self.process.send_signal(number)
        return await asyncio.to_thread(self.process.wait, 30)


async def a_step_breaks(server: Server) -> bool:
    """The sequence that is named fails alone; without a name the batch fails; the server goes on."""
    for order, most in (("raise-named", 1), ("raise", 6)):
        server.order(order)  # before they come: else they may be over, and the order hits who asks next
        ends = await asyncio.gather(*(server.ask() for _ in range(6)))
        num_failed = sum(end not in ("length", "stop") for end in ends)
        if not 1 <= num_failed <= most or await server.ask() != "length":
            return False
    return await server.is_idle()


async def a_step_hangs(server: Server) -> bool:
    """While a step hangs, liveness says so; when it ends after all, everything is well again."""
    server.order(f"hang {3 * STEP_TIMEOUT_S}")
    asked = asyncio.create_task(server.ask())
    seen = set()
    while not asked.done():
        seen.add((await server.http.get("/health")).status_code)
        await asyncio.sleep(0.1)
    return 503 in seen and await asked == "length" and (await server.http.get("/health")).status_code == 200


async def clients_vanish(server: Server) -> bool:
    """Connections that end after any number of bytes sent or read leave nothing behind."""
    chance = random.Random(0)
    body = json.dumps(BODY | {"stream": True, "max_tokens": 64}).encode()
    head = b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
    message = head + f"content-length: {len(body)}\r\n\r\n".encode() + body
    for _ in range(NUM_VANISHING):
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(message[: chance.choice((chance.randrange(len(message)), len(message)))])
        with contextlib.suppress(TimeoutError, ConnectionError):
            await asyncio.wait_for(reader.read(chance.randrange(1, 600)), 0.05)
        writer.transport.abort()
    return await server.ask() == "length" and await server.is_idle()


async def nonsense_arrives(server: Server) -> bool:
    """Prompts that no tokenizer can make sense of are the client's mistake, and nobody else's."""
    bad: list[object] = ["\ud800", [10**9], [-1], [], [[]], {"a": 1}, [5, "x"], None]
    codes = set()
    for one in bad:
        content, headers = json.dumps(BODY | {"prompt": one}), {"content-type": "application/json"}
        codes.add((await server.http.post("/v1/completions", content=content, headers=headers)).status_code)
    return codes == {400} and await server.ask() == "length"


def _usage(server: Server) -> list[tuple[int | None]]:
    """Requests that the usage file knows of."""
    with contextlib.closing(sqlite3.connect(server.usage)) as file:
        return file.execute("select sum(requests) from headway_usage").fetchall()


async def it_is_killed(server: Server) -> bool:
    """After SIGKILL in the middle of work it starts again on the same usage file, which lost a second at most."""
    [(before,)] = _usage(server)
    for _ in range(3):
        await server.ask()
    await asyncio.sleep(2.5)
    asks = [asyncio.create_task(server.ask(max_tokens=200)) for _ in range(4)]
    await asyncio.sleep(0.1)
    await server.end(signal.SIGKILL)
    await asyncio.gather(*asks, return_exceptions=True)
    with contextlib.closing(sqlite3.connect(server.usage)) as file:
        is_whole = file.execute("pragma integrity_check").fetchone()[0] == "ok"
    [(num_kept,)] = _usage(server)
    await server.start()
    return is_whole and num_kept >= (before or 0) + 3 and await server.ask() == "length"


async def it_is_asked_to_leave(server: Server) -> bool:
    """SIGTERM in the middle of work: every stream gets its end, and the process leaves with status 0."""
    asks = [asyncio.create_task(server.ask(max_tokens=200)) for _ in range(4)]
    await asyncio.sleep(0.1)
    status = await server.end(signal.SIGTERM)
    ends = await asyncio.gather(*asks, return_exceptions=True)
    await server.start()
    return status == 0 and all(end in ("length", "abort", "503") for end in ends)


async def the_disk_is_full(server: Server) -> bool:
    """Usage cannot be written any more; answers go on."""
    server.order("disk-full")
    ends = [await server.ask() for _ in range(4)]
    await asyncio.sleep(2.5)
    return {*ends, await server.ask()} == {"length"}


SCENARIOS: tuple[Callable[[Server], Any], ...] = (
    a_step_breaks,
    a_step_hangs,
    clients_vanish,
    nonsense_arrives,
    it_is_killed,
    it_is_asked_to_leave,
    the_disk_is_full,
)


async def chaos(options: argparse.Namespace) -> int:
    """All scenarios on one server, several rounds."""
    num_failed = 0
    with tempfile.TemporaryDirectory(prefix="headway-") as folder:
        server = Server(options, Path(folder))
        await server.start()
        try:
            for _ in range(options.rounds):
                for scenario in SCENARIOS:
                    holds = await asyncio.wait_for(scenario(server), 120)
                    num_failed += not holds
                    print("ok  " if holds else "FAIL", scenario.__name__.replace("_", " "), flush=True)
        finally:
            if server.process is not None and server.process.poll() is None:
                os.kill(server.process.pid, signal.SIGKILL)
                server.process.wait()
            await server.http.aclose()
    return 1 if num_failed else 0


def main() -> int:
    """The client's side, or with `--serve` the server's."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default=None)
    parser.add_argument("--executor", default=default_executor())
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    for name, kind in (("--port", int), ("--orders", str), ("--usage", str)):
        parser.add_argument(name, type=kind, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(options)
        return 0
    return asyncio.run(chaos(options))


if __name__ == "__main__":
    sys.exit(main())
