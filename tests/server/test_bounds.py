"""HTTP's own parts are bounded before the application sees them."""

import json
import re
import resource
import socket
from contextlib import ExitStack

import httpx
import pytest

from headway.core import FinishReason
from headway.server.bounded import MAX_HEAD_BYTES
from headway.server.serve import allow_connections
from tests.support.fake_engine import FakeEngine
from tests.support.live_server import live

START = b"GET /version HTTP/1.1\r\nhost: x\r\n"


def until_closed(connection):
    received = b""
    try:
        while piece := connection.recv(65536):
            received += piece
    except ConnectionResetError:
        pass  # it hung up while we were still sending
    return received


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
            connection.sendall(head)
            connection.shutdown(1)
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
    "nonsense", [b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", b"GET /health HTTP/1.1\r\nno colon\r\n\r\n"]
)
def test_what_is_no_http_is_an_error_like_every_other(nonsense):
    """TLS spoken to an open port, a broken head: 400 in OpenAI's shape, with a request id in head and body."""
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
    with live(FakeEngine()) as server, ExitStack() as open_ones:
        connections = {begun: open_ones.enter_context(server.open_socket()) for begun in HALF_DONE}
        for begun, connection in connections.items():
            connection.sendall(begun)
        said = {begun: until_closed(connection).partition(b"\r\n")[0] for begun, connection in connections.items()}
    assert said == HALF_DONE


@pytest.mark.server
def test_a_long_answer_outlives_the_time_for_a_head(monkeypatch):
    """What is sent ahead of time waits for the answer under way, however long that takes."""
    monkeypatch.setattr("headway.server.bounded.HEAD_S", 0.2)
    engine = FakeEngine()
    engine.permits = 0
    with live(engine) as server, server.open_socket() as connection:
        connection.sendall(POST + b"content-length: %d\r\n\r\n" % len(BODY) + BODY + b"GET /ver")
        connection.settimeout(0.5)
        with pytest.raises(TimeoutError):
            connection.recv(1)
        server.call(engine.allow, None)
        connection.settimeout(10)
        assert connection.recv(65536).startswith(b"HTTP/1.1 200 OK")


@pytest.mark.server
def test_who_reads_nothing_is_hung_up_on(monkeypatch):
    """Whole answers too: those that are asked for and never read would be kept for ever."""
    monkeypatch.setattr("headway.server.bounded.UNREAD_S", 0.1)
    with live(FakeEngine()) as server, server.open_socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.sendall(b"GET /ui HTTP/1.1\r\nhost: x\r\n\r\n" * 400)
        server.until(lambda: server.num_connections == 1)
        server.until(lambda: server.num_connections == 0)


@pytest.mark.server
def test_of_several_requests_sent_at_once_the_one_under_way_learns_of_the_end():
    """A client that sends ahead and leaves: what runs is given up, and the rest is never begun."""
    engine = FakeEngine()
    engine.permits = 0
    with live(engine) as server:
        with server.open_socket() as connection:
            connection.sendall((POST + b"content-length: %d\r\n\r\n" % len(BODY) + BODY) * 3)
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
