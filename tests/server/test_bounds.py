"""HTTP's own parts are bounded before the application sees them."""

import asyncio
import json
import re
import resource
import socket
from contextlib import ExitStack, suppress

import httpx
import pytest
import uvicorn
import uvloop
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from headway.core import FinishReason
from headway.server import ServerConfig
from headway.server.bounded import LATER_S, MAX_HEAD_BYTES, BoundedHttp, bounded_http
from headway.server.serve import allow_connections
from tests.support.fake_engine import FakeEngine
from tests.support.live_server import LiveServer, live

START = b"GET /version HTTP/1.1\r\nhost: x\r\n"
UI = b"GET /ui HTTP/1.1\r\nhost: x\r\n"


def until_closed(connection):
    received = b""
    try:
        while piece := connection.recv(65536):
            received += piece
    except ConnectionResetError:
        pass  # it hung up while we were still sending
    return received


def one_answer(connection):
    """Head and body of an answer with a declared length."""
    received = b""
    while b"\r\n\r\n" not in received or len(received.partition(b"\r\n\r\n")[2]) < length_of(received):
        piece = connection.recv(65536)
        assert piece, received
        received += piece
    return received


def length_of(answer):
    return int(re.search(rb"content-length: (\d+)", answer)[1])


@pytest.mark.server
@pytest.mark.parametrize(
    "head",
    [
        START + b"x-a: " + b"a" * 2 * MAX_HEAD_BYTES + b"\r\n\r\n",
        START + b"x-a: a\r\n" * (MAX_HEAD_BYTES // 4) + b"\r\n",
        b"GET /version?" + b"a" * 70_000 + b" HTTP/1.1\r\nhost: x\r\n\r\n",
    ],
    ids=["one header", "many headers", "url"],
)
def test_a_head_that_is_too_large_is_refused(head):
    """A long header, many headers, a long URL: 4xx, and the server serves on."""
    with live(FakeEngine()) as server:
        with server.open_socket() as connection:
            with suppress(OSError):  # it may have hung up already
                connection.sendall(head)
                connection.shutdown(socket.SHUT_WR)
            assert until_closed(connection)[:10] in (b"HTTP/1.1 4", b"")
        assert httpx.get(server.url + "/version").status_code == 200


@pytest.mark.server
def test_a_head_without_end_is_cut_off():
    """A client that never ends its header is hung up on after the limit, not read for ever."""
    with live(FakeEngine()) as server, server.open_socket() as connection:
        connection.sendall(START + b"x-a: ")
        with pytest.raises((BrokenPipeError, ConnectionResetError)):
            connection.sendall(b"a" * 10**8)


@pytest.mark.server
@pytest.mark.parametrize(
    "nonsense",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GET /health HTTP/1.1\r\nno colon\r\n\r\n",
        b"POST /tokenize HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n1\r\n{\r\nno length\r\n",
    ],
    ids=["tls", "head", "body"],
)
def test_what_is_no_http_is_an_error_like_every_other(nonsense):
    """TLS spoken to an open port, a broken head or body: 400 in OpenAI's shape, with a request id in head and body."""
    with live(FakeEngine()) as server, server.open_socket() as connection:
        connection.sendall(nonsense)
        head, _, body = until_closed(connection).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 Bad Request")
    name = re.search(rb"x-request-id: (\w+)", head)[1].decode()
    assert (json.loads(body)["error"]["type"], json.loads(body)["error"]["request_id"]) == (
        "invalid_request_error",
        name,
    )


@pytest.mark.server
def test_large_bodies_and_later_requests_are_not_counted(serve):
    """Only heads count: a body of a megabyte, then another request on the same connection."""
    with live(FakeEngine()) as server, httpx.Client() as client:
        for _ in range(3):
            answer = client.post(server.url + "/tokenize", json={"prompt": "a" * 10**6})
            assert answer.status_code == 400
            assert "characters" in answer.text
        assert client.get(server.url + "/version", headers={"x-a": "a" * 60_000}).status_code == 200


async def test_a_whole_head_is_measured_too(client):
    """Where a server in front has parsed it already."""
    answer = await client.get("/version", headers={"x-a": "a" * MAX_HEAD_BYTES})
    assert (answer.status_code, answer.json()["error"]["code"]) == (431, "request_header_too_large")


POST = b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
BODY = b'{"prompt": "Hi"}'
WHOLE = POST + b"content-length: %d\r\n\r\n" % len(BODY) + BODY


HALF_DONE = {
    b"": b"",
    b"POST /v1/comp": b"HTTP/1.1 408 Request Timeout",
    POST + b"content-length: 100\r\n\r\n{": b"HTTP/1.1 408 Request Timeout",
    POST + b"transfer-encoding: chunked\r\n\r\n1\r\n{\r\n": b"HTTP/1.1 408 Request Timeout",
    START + b"\r\nPO": b"HTTP/1.1 200 OK",
    b"POST /nowhere HTTP/1.1\r\nhost: x\r\ncontent-length: 9\r\n\r\n{": b"HTTP/1.1 404 Not Found",
}
"""Nothing, half a head, half a body, half of the chunks, half a second head, a body that nobody reads."""


@pytest.mark.server
def test_who_does_not_go_on_is_hung_up_on(monkeypatch):
    """Each of them would hold a connection, and some of them megabytes, for as long as it likes."""
    monkeypatch.setattr("headway.server.bounded.HEAD_S", 0.3)
    monkeypatch.setattr("headway.server.body.BODY_S", 0.3)
    monkeypatch.setattr("headway.server.linger.LINGER_S", 0.1)
    with live(FakeEngine()) as server, ExitStack() as open_ones:
        with server.standing_still():
            connections = {begun: open_ones.enter_context(server.open_socket()) for begun in HALF_DONE}
            for begun, connection in connections.items():
                connection.sendall(begun)
        said = {begun: until_closed(connection).partition(b"\r\n")[0] for begun, connection in connections.items()}
    assert said == HALF_DONE


@pytest.mark.server
def test_a_long_answer_outlives_the_time_for_a_head(monkeypatch):
    """What is sent ahead of time waits for the answer under way, however long that takes, and for each in turn."""
    monkeypatch.setattr("headway.server.bounded.HEAD_S", 0.15)
    engine = FakeEngine()
    with live(engine) as server, ExitStack() as open_ones:
        server.call(engine.allow, len("Hello, world"))
        with server.standing_still():
            connection = open_ones.enter_context(server.open_socket())
            connection.sendall(WHOLE + WHOLE + b"GET /ver")
        assert one_answer(connection).startswith(b"HTTP/1.1 200 OK")
        connection.settimeout(0.4)
        with pytest.raises(TimeoutError):
            connection.recv(1)
        server.call(engine.allow, None)
        connection.settimeout(10)
        assert one_answer(connection).startswith(b"HTTP/1.1 200 OK")


@pytest.mark.server
@pytest.mark.parametrize(
    ("first", "then"),
    [(START + b"\r\n", b"\r\n"), (b"POST /nowhere HTTP/1.1\r\nhost: x\r\ncontent-length: 9\r\n\r\n{", b"12345678")],
    ids=["an empty line", "the rest of a body"],
)
def test_what_comes_after_an_answer_and_is_no_request_keeps_nothing_open(monkeypatch, first, then):
    """It ends uvicorn's own wait for the next request, and begins none."""
    monkeypatch.setattr("headway.server.bounded.HEAD_S", 0.2)
    monkeypatch.setattr("headway.server.linger.LINGER_S", 0.0)
    with live(FakeEngine()) as server, ExitStack() as open_ones:
        with server.standing_still():
            connection = open_ones.enter_context(server.open_socket())
            connection.sendall(first)
        one_answer(connection)
        server.call(lambda: None)  # its loop turns: the answer is at its end
        connection.sendall(then)
        assert until_closed(connection) == b""


@pytest.mark.server
@pytest.mark.parametrize(
    "junk",
    [
        b"\x16\x03\x01 nonsense\r\n",
        START + b"x-a: " + b"a" * 2 * MAX_HEAD_BYTES,
        POST + b"transfer-encoding: chunked\r\n\r\n1\r\n{\r\nno length\r\n",
    ],
    ids=["tls", "a head too large", "a broken body"],
)
@pytest.mark.parametrize("num_whole", [1, 3])
def test_nothing_is_said_into_an_answer(junk, num_whole):
    """What is no request waits for the answers to those before it, is answered in turn, and is the last."""
    engine = FakeEngine()
    engine.permits = 0
    with live(engine) as server, server.open_socket() as connection:
        connection.sendall(WHOLE * num_whole + junk)
        server.until(lambda: engine.streams)
        connection.sendall(b"more of it")
        server.call(engine.allow, None)
        answers = re.split(rb"HTTP/1.1 (?=\d)", until_closed(connection))[1:]
    assert [answer[:3] for answer in answers[:-1]] == [b"200"] * num_whole
    assert answers[-1][:3] in (b"400", b"431")
    assert all(len(answer.partition(b"\r\n\r\n")[2]) == length_of(answer) for answer in answers)


@pytest.mark.server
@pytest.mark.parametrize(
    "rest",
    [POST + b"content-length: 100\r\n\r\n{", POST + b"transfer-encoding: chunked\r\n\r\n1\r\n{\r\nno length\r\n"],
    ids=["half a body", "a broken body"],
)
def test_who_leaves_in_the_middle_of_a_request_still_gets_the_answer_to_the_one_before(monkeypatch, rest):
    """The moment that an answer under way has left is a matter of that request, not of the last that came."""
    monkeypatch.setattr("headway.server.bounded.LAST_WORD_S", 2.0)
    with live(FakeEngine()) as server, server.open_socket() as connection:
        connection.sendall(WHOLE + rest)
        connection.shutdown(socket.SHUT_WR)
        assert one_answer(connection).startswith(b"HTTP/1.1 200 OK")


def test_nothing_private_of_the_web_server_is_relied_on():
    """What begins with an underscore comes and goes between the versions that are permitted."""
    assert [name for name in vars(BoundedHttp) if name[0] == "_" != name[1] and hasattr(HttpToolsProtocol, name)] == []


@pytest.mark.server
@pytest.mark.parametrize("loop", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
@pytest.mark.parametrize(
    "asked", [(UI + b"\r\n") * 50, UI + b"connection: close\r\n\r\n"], ids=["many", "one, and closed"]
)
def test_who_reads_nothing_is_hung_up_on(monkeypatch, caplog, loop, asked):
    """Whole answers too. The last one may be too short to be waited for, and is when the connection is to be closed."""
    monkeypatch.setattr("headway.server.bounded.LATER_S", 0.0)
    monkeypatch.setattr(LiveServer, "run", staticmethod(loop))
    with live(FakeEngine(), stall_timeout_s=0.1) as server, socket.socket() as connection:
        server.sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.connect((server.host, server.port))
        connection.sendall(asked)
        server.until(lambda: server.num_connections == 1)
        server.until(lambda: server.num_connections == 0)
    assert "has read nothing for 0.1 s" in caplog.text


class Still:
    """A loop whose time is set by hand, a transport that takes what it is told, and uvicorn's count of connections."""

    def __init__(self):
        self.now_s, self.num_unread, self.timers, self.is_aborted = 0.0, 0, [], False

    def time(self):
        return self.now_s

    def call_later(self, seconds, action, *_):
        self.timers.append(timer := asyncio.TimerHandle(self.now_s + seconds, action, (), self))
        return timer

    def run_to(self, now_s):
        while due := [one for one in self.timers if not one.cancelled() and one.when() <= now_s]:
            first = min(due, key=lambda one: one.when())
            self.timers.remove(first)
            self.now_s = first.when()
            first._callback()
        self.now_s = now_s

    def get_write_buffer_size(self):
        return self.num_unread

    def abort(self):
        self.is_aborted = True

    def is_closing(self):
        return False

    get_debug = is_closing

    def get_extra_info(self, *_):
        return None

    def _timer_handle_cancelled(self, _):
        """asyncio's own bookkeeping."""


@pytest.fixture
def quiet_reader(monkeypatch):
    """A connection whose client may read nothing for 100 s, and take its time for a request; and its stage."""
    monkeypatch.setattr("headway.server.bounded.HEAD_S", 1e6)
    stage = Still()
    http = bounded_http(100.0 - LATER_S)(uvicorn.Config(None, http="httptools"), ServerState(), {}, stage)
    http.connection_made(stage)
    return http, stage


def test_who_reads_now_and_then_is_not_hung_up_on_however_much_waits(quiet_reader):
    """A look may find more unread than the one before: what counts is whether anything was read between them."""
    http, stage = quiet_reader
    http.pause_writing()
    for k in range(1, 9):
        stage.num_unread = 1000 * k
        stage.run_to(90.0 * k)
        assert not stage.is_aborted
        http.resume_writing()
        http.pause_writing()
    stage.run_to(90.0 * 8 + 130.0)
    assert stage.is_aborted


def test_nobody_looks_at_a_connection_that_is_gone(quiet_reader):
    """No timer is left that would look again and again, and keep everything alive."""
    http, stage = quiet_reader
    stage.run_to(45.0)
    http.connection_lost(ConnectionResetError())
    assert [timer for timer in stage.timers if not timer.cancelled()] == []


def test_the_time_for_a_reader_is_the_one_that_was_set():
    """Longer than a stream's own, which says whose request it gives up; never where that never does."""
    assert bounded_http(0.0).unread_s == 0.0
    assert all(bounded_http(limit).unread_s > limit for limit in (0.1, ServerConfig().stall_timeout_s, 3600.0))


@pytest.mark.server
def test_of_several_requests_sent_at_once_the_one_under_way_learns_of_the_end():
    """A client that sends ahead and leaves: what runs is given up, and the rest is never begun."""
    engine = FakeEngine()
    engine.permits = 0
    with live(engine) as server:
        with server.open_socket() as connection:
            connection.sendall(WHOLE * 3)
            server.until(lambda: engine.streams)
        server.until(lambda: not engine.streams)
    assert [reason for _, reason in engine.ended] == [FinishReason.ABORT]


def test_as_many_connections_as_the_system_allows():
    """The usual soft limit of open files is below what the hard one allows."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (512, before[1]))
        allow_connections()
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        assert soft == (65_536 if hard == resource.RLIM_INFINITY else min(hard, 65_536))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.mark.server
@pytest.mark.parametrize("status", [401, 404, 415])
def test_who_is_refused_while_still_sending_reads_why(status):
    """A client that wants the connection closed and sends its body later: the answer is there, and no reset."""
    words = {401: b"authorization: Bearer wrong\r\n", 404: b"", 415: b"content-type: text/plain\r\n"}
    path = b"/nothing" if status == 404 else b"/v1/completions"
    head = b"POST " + path + b" HTTP/1.1\r\nhost: x\r\nconnection: close\r\n" + words[status]
    if status != 401:
        head += b"authorization: Bearer right\r\n"
    with live(FakeEngine(), api_keys=("right",)) as server, server.open_socket() as connection:
        connection.sendall(head + b"content-length: 1000000\r\n\r\n" + b"x" * 10)
        answer = one_answer(connection)
        connection.sendall(b"x" * 500_000)
        connection.sendall(b"x" * 499_990)
        assert answer.startswith(b"HTTP/1.1 %d " % status)
        assert connection.recv(10) == b""


@pytest.mark.server
def test_who_goes_on_sending_for_ever_is_hung_up_on(monkeypatch):
    """Patience with a body that nobody wants is bounded in time: an answer does not keep its connection open."""
    monkeypatch.setattr("headway.server.linger.LINGER_S", 0.05)
    with live(FakeEngine(), api_keys=("right",)) as server, server.open_socket() as connection:
        connection.sendall(
            b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\nconnection: close\r\n\r\n"
        )
        assert one_answer(connection).startswith(b"HTTP/1.1 401 ")
        assert connection.recv(10) == b""


@pytest.mark.server
@pytest.mark.parametrize("streams", [True, False])
def test_who_speaks_http_1_0_gets_no_chunks(streams):
    """It could not read them: a stream is its events as they come, and ends with the connection."""
    body = json.dumps({"prompt": "Hi", "stream": streams}).encode()
    head = f"POST /v1/completions HTTP/1.0\r\ncontent-length: {len(body)}\r\n\r\n".encode()
    with live(FakeEngine()) as server, server.open_socket() as connection:
        connection.sendall(head + body)
        answer = b"".join(iter(lambda: connection.recv(65536), b""))
    said, _, content = answer.partition(b"\r\n\r\n")
    assert said.startswith(b"HTTP/1.1 200 ")
    assert b"\r\nconnection: close" in said
    assert b"transfer-encoding" not in said
    if streams:
        events = content.removesuffix(b"\n\n").split(b"\n\n")
        assert all(json.loads(event.removeprefix(b"data: "))["choices"] for event in events[:-1])
        assert events[-1] == b"data: [DONE]"
    else:
        assert f"content-length: {len(content)}".encode() in said


@pytest.mark.server
@pytest.mark.parametrize("offer", ["h2c", "websocket"])
@pytest.mark.parametrize("comes_later", [False, True])
def test_an_offer_of_another_protocol_takes_no_body_away(offer, comes_later):
    """Java's HttpClient offers HTTP/2 with its first request: that and the next are answered in HTTP/1.1."""
    body = json.dumps({"prompt": "Hi"}).encode()
    head = f"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\n".encode()
    head += f"Connection: Upgrade, HTTP2-Settings\r\nHTTP2-Settings: AAE\r\nUpgrade: {offer}\r\n\r\n".encode()
    with live(FakeEngine()) as server, server.open_socket() as connection:
        for _ in range(2):
            for piece in (head, body) if comes_later else (head + body,):
                connection.sendall(piece)
                server.call(lambda: None)  # its loop turns in between
            assert one_answer(connection).startswith(b"HTTP/1.1 200 ")
