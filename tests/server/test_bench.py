"""`headway bench serve` against real sockets: our own server, and a small one that misbehaves as told."""

import asyncio
import json
import signal
import threading

import pytest

from headway.bench import HttpSettings, HttpTarget, Runner, RunPlan
from headway.cli.main import main
from headway.clock import WallClock
from headway.report import Outcome
from tests.support.fake_engine import FakeEngine
from tests.support.live_server import live
from tests.support.scripted import DONE, FINISH, PlainCalls, completion, item, usage

pytestmark = pytest.mark.server


class SocketServer:
    """HTTP by hand: `script(body, number)` gives (status, headers, [bytes, or None to cut the connection])."""

    def __init__(self, script):
        self.script = script
        self.num_requests = self.num_connections = self.in_flight = self.most_in_flight = self.num_cut = 0
        self.release = asyncio.Event()
        self._handlers, self._writers = set(), set()

    async def __aenter__(self):
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, backlog=1024)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_):
        self._server.close()
        for writer in self._writers:
            writer.close()
        await asyncio.gather(*self._handlers)

    async def _serve(self, reader, writer):
        self.num_connections += 1
        self._handlers.add(asyncio.current_task())
        self._writers.add(writer)
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                length = int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0] or 0)
                body = await reader.readexactly(length)
                if not await self._answer(head, body, writer):
                    break
        except (asyncio.IncompleteReadError, ConnectionError):
            self.num_cut += 1
        finally:
            writer.close()

    async def _answer(self, head, body, writer):
        if head.startswith(b"GET"):
            listed = json.dumps({"data": [{"id": "m"}]}).encode() if b"/v1/models" in head else b"{}"
            status = b"200 OK" if b"/v1/models" in head else b"404 Not Found"
            writer.write(b"HTTP/1.1 %b\r\ncontent-length: %d\r\n\r\n%b" % (status, len(listed), listed))
            return True
        number, self.num_requests = self.num_requests, self.num_requests + 1
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            return await self._stream(writer, *self.script(json.loads(body), number))
        finally:
            self.in_flight -= 1

    async def _stream(self, writer, status, headers, parts):
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        head = f"HTTP/1.1 {status} X\r\ncontent-type: text/event-stream\r\n{lines}transfer-encoding: chunked\r\n\r\n"
        writer.write(head.encode())
        for part in parts:
            if part is None:
                await writer.drain()
                return False
            if part is WAIT:
                await self.release.wait()
                continue
            writer.write(b"%x\r\n%b\r\n" % (len(part), part))
            await writer.drain()
        writer.write(b"0\r\n\r\n")
        return True


WAIT = object()
WHOLE = [completion("a"), completion("b"), FINISH, usage(4, 2), DONE]


async def measured(server, items, **plan):
    clock = WallClock()
    target = HttpTarget(HttpSettings(url=server.url), clock)
    try:
        return await Runner(target, PlainCalls(), clock, RunPlan(items=lambda: items, **plan)).run()
    finally:
        await target.close()


@pytest.mark.timeout(180)  # 600 requests through one thread that is client and server
@pytest.mark.parametrize("num", [120, pytest.param(300, marks=pytest.mark.slow)])  # a client's own pool has 100
async def test_the_pool_is_as_large_as_the_load_and_connections_are_kept(num):
    """PUBLIC_ISSUES 11.8: all requests at a time reach the server; a second wave opens no new connection."""
    async with SocketServer(lambda body, number: (200, {}, [*WHOLE[:1], WAIT, *WHOLE[1:]])) as server:
        clock = WallClock()
        target = HttpTarget(HttpSettings(url=server.url), clock)

        async def wave():
            server.release.clear()
            plan = RunPlan(items=lambda: [item(k) for k in range(num)])
            run = asyncio.create_task(Runner(target, PlainCalls(), clock, plan).run())
            async with asyncio.timeout(60):
                while server.in_flight < num:  # noqa: ASYNC110  # the server's own count, seen from outside
                    await asyncio.sleep(0.01)
            server.release.set()
            return await run

        first = await wave()
        num_connections = server.num_connections
        second = await wave()
        await target.close()
    assert server.most_in_flight == num
    assert [sum(request.is_ok for request in run.requests) for run in (first, second)] == [num, num]
    assert server.num_connections == num_connections
    assert all(request.connected_s is None for request in second.requests)
    assert sum(request.connected_s is not None for request in first.requests) >= num - 1


async def test_a_connection_cut_in_the_middle_fails_that_request_alone():
    """What had come is kept, the reason is stated, and the run goes on."""
    cut = [completion("a"), None]
    async with SocketServer(lambda body, number: (200, {}, cut if number == 1 else WHOLE)) as server:
        run = await measured(server, [item(k, at_s=0.05 * k) for k in range(4)], max_concurrency=1)  # `number` is `k`
    assert [request.outcome for request in run.requests] == [Outcome.OK, Outcome.FAILED, Outcome.OK, Outcome.OK]
    assert run.requests[1].num_output == 1
    assert "connection broke" in run.requests[1].reason


async def test_a_client_that_gives_up_hangs_up():
    """The server sees the end of the connection, not a reader that went quiet."""
    async with SocketServer(lambda body, number: (200, {}, [*[completion("a")] * 5, WAIT, *WHOLE])) as server:
        run = await measured(server, [item(0, cancel_tokens=3)])
        server.release.set()
    assert run.requests[0].outcome is Outcome.CANCELLED
    assert server.num_cut >= 1


async def test_a_server_that_never_pauses_is_read_whole():
    """PUBLIC_ISSUES 11.7: 10 streams of 500 tokens at once; the client's own lag is part of the run."""
    body = [completion("word ", token_ids=[1])] * 500
    async with SocketServer(lambda *_: (200, {}, [*body, FINISH, DONE])) as server:
        run = await measured(server, [item(k, num_output=500) for k in range(10)])
    assert [request.num_output for request in run.requests] == [500] * 10
    assert run.client_lag_s


# ---- the command -----------------------------------------------------------------------------------------------------


@pytest.fixture
def behind():
    """Runs a socket server in a thread of its own; gives its URL."""
    stops = []

    def start(script):
        ready, box = threading.Event(), {}

        async def serve():
            box["loop"], box["stop"] = asyncio.get_running_loop(), asyncio.Event()
            async with SocketServer(script) as server:
                box["server"] = server
                ready.set()
                await box["stop"].wait()

        thread = threading.Thread(target=lambda: asyncio.run(serve()))
        thread.start()
        assert ready.wait(10)
        stops.append((box, thread))
        return box["server"].url

    yield start
    for box, thread in stops:
        box["loop"].call_soon_threadsafe(box["stop"].set)
        thread.join(10)


LOAD = ["--num-requests", "12", "--rate", "100", "--prompt-len", "4", "--output-len", "2"]


def test_the_command_measures_any_server(behind, capsys, tmp_path):
    """Tables for people, JSON with vLLM's keys, CSV, a page, and a file that `compare` takes."""
    url = behind(lambda body, number: (200, {}, WHOLE))
    files = ["-o", str(tmp_path / "a.json"), "--csv", str(tmp_path / "a.csv"), "--html", str(tmp_path / "a.html")]
    assert main(["bench", "serve", "--url", url, *LOAD, *files, "--json", "--save-detailed"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["completed"], document["failed"]) == (12, 0)
    assert document["median_ttft_ms"] > 0
    assert document["output_lens"] == [2] * 12
    assert len((tmp_path / "a.csv").read_text().splitlines()) == 13
    assert "<html" in (tmp_path / "a.html").read_text()
    assert main(["bench", "serve", "--url", url, *LOAD, "-o", str(tmp_path / "b.json"), "--label", "b"]) == 0
    assert "Latency" in capsys.readouterr().out
    assert main(["bench", "compare", str(tmp_path / "a.json"), str(tmp_path / "b.json"), "--json"]) == 0
    assert any(row["metric"] == "TTFT P50, ms" for row in json.loads(capsys.readouterr().out)["rows"])


def test_the_command_measures_our_own_server(capsys):
    """Usage, lengths and names come out right against `headway serve`'s application."""
    with live(FakeEngine("Hello, wide world of engines")) as server:
        status = main(["bench", "serve", "--url", server.url, *LOAD, "--endpoint", "chat", "--json"])
    document = json.loads(capsys.readouterr().out)
    assert status == 0
    assert document["completed"] == 12
    assert document["headway"]["target"]["model"] == "fake"


def test_refusals_make_the_run_invalid(behind, capsys):
    """Half of the requests refused: status 1, and the report says what its latencies are worth."""
    url = behind(lambda body, number: (200, {}, WHOLE) if number % 2 else (429, {"retry-after": "0"}, [b"{}"]))
    assert main(["bench", "serve", "--url", url, *LOAD, "--num-warmups", "0"]) == 1
    assert "50%" in capsys.readouterr().out


@pytest.mark.parametrize(("status", "words"), [(401, "--api-key"), (404, "no such model")])
def test_what_cannot_work_ends_before_the_run(behind, capsys, status, words):
    """One message, no traceback, nothing on stdout."""
    url = behind(lambda body, number: (status, {}, [b'{"error": {"message": "no such model"}}']))
    assert main(["bench", "serve", "--url", url, *LOAD]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert words in err
    assert len(err.strip().splitlines()) == 1


def test_a_key_that_expires_ends_the_run_with_a_report(behind, capsys):
    """What was measured until the 401 is reported; one line says why it ended."""
    url = behind(lambda body, number: (200, {}, WHOLE) if number < 6 else (401, {}, [b"{}"]))
    assert main(["bench", "serve", "--url", url, *LOAD, "--num-warmups", "0"]) == 1
    out, err = capsys.readouterr()
    assert "Outcomes" in out
    assert "401" in err


def test_nobody_there(capsys):
    """An unreachable server is one line."""
    assert main(["bench", "serve", "--url", "http://127.0.0.1:9", *LOAD]) == 1
    assert "no server answers at http://127.0.0.1:9" in capsys.readouterr().err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_keeps_what_was_measured(behind, nursery, number):
    """A real process, a real signal: the report of what came so far, one line about the end, status 130.

    SIGTERM, which `timeout` and supervisors send, is as good as Ctrl-C.
    """
    seen = threading.Semaphore(0)

    def script(body, number):
        seen.release()
        return 200, {}, WHOLE

    url = behind(script)
    load = ["--num-requests", "100000", "--rate", "50", "--max-concurrency", "3"]
    args = ["bench", "serve", "--url", url, *load, "--json"]
    process = nursery.start("headway.cli.main:main", *args)
    try:
        for _ in range(1 + 3 + 1):  # one to warm up, as many as may run at a time, one that found a place again
            assert seen.acquire(timeout=30), "the command sent nothing"
        process.send_signal(number)
        out, err = process.communicate(timeout=30)
    finally:
        process.kill()
        process.communicate()
    assert process.returncode == 130
    assert 1 <= json.loads(out)["completed"] < 1000
    assert "interrupted" in err
    assert "Traceback" not in err
