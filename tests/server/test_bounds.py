"""HTTP's own parts are bounded before the application sees them."""

import json
import re

import httpx
import pytest

from headway.server.bounded import MAX_HEAD_BYTES
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
