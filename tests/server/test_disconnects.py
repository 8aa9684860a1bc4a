"""A client that goes away is noticed whatever is going on, and everything that it asked for is given up."""

import json
import logging
import socket
import struct

import pytest

from headway.core import FinishReason
from tests.support.fake_engine import FakeEngine
from tests.support.live_server import live

pytestmark = pytest.mark.server

BODIES = {
    "/v1/completions": [
        {"prompt": "Hi"},
        {"prompt": ["a", "b", "c"], "n": 2},
        {"prompt": "Hi", "logprobs": 2, "echo": True},
    ],
    "/v1/chat/completions": [{"messages": [{"role": "user", "content": "Hi"}], "n": 2, "logprobs": True}],
}
CASES = [(path, body, stream) for path, bodies in BODIES.items() for body in bodies for stream in (False, True)]


def send(server, path, body):
    """Write a request by hand; the open socket."""
    sock = server.open_socket()
    content = json.dumps({"max_tokens": 50, **body}).encode()
    head = (
        f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n"
    )
    sock.sendall(head.encode() + content)
    return sock


def num_prompts(body):
    return len(body["prompt"]) if isinstance(body.get("prompt"), list) else 1


@pytest.fixture(scope="module")
def only_server():
    with live(FakeEngine()) as server:
        yield server


@pytest.fixture
def server(only_server):
    """The one server, as if it were new."""
    only_server.call(only_server.engine.renew, "Hello, world " * 3)
    only_server.engine.permits = 0
    return only_server


@pytest.fixture
def engine(server):
    return server.engine


def assert_all_given_up(server, engine, body):
    server.until(lambda: not engine.streams)
    assert [reason for _, reason in engine.ended] == [FinishReason.ABORT] * num_prompts(body)
    # The next client is served at once.
    server.call(engine.allow, None)
    with send(server, "/v1/completions", {"prompt": "Hi", "max_tokens": 1}) as sock:
        assert sock.recv(1000).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize(("path", "body", "stream"), CASES)
def test_leaving_before_the_first_token(server, engine, caplog, path, body, stream):
    """PUBLIC_ISSUES 1.1, 1.3, 1.4, 1.10: while the request waits or its prompt is computed."""
    with send(server, path, {**body, "stream": stream}):
        server.until(lambda: len(engine.streams) == num_prompts(body))
    assert_all_given_up(server, engine, body)
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


@pytest.mark.parametrize(("path", "body", "stream"), CASES)
def test_leaving_after_some_tokens(server, engine, caplog, path, body, stream):
    """PUBLIC_ISSUES 1.2, 1.6, 1.13, 1.15: in the middle of the answer, streamed or not, whatever was asked for."""
    with send(server, path, {**body, "stream": stream}) as sock:
        server.until(lambda: len(engine.streams) == num_prompts(body))
        server.call(engine.allow, 7)
        received = b""
        while stream and b"data: " not in received:
            received += sock.recv(100_000)
        server.until(lambda: engine.permits == 0)
    assert_all_given_up(server, engine, body)
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


def test_leaving_with_a_reset(server, engine):
    """A connection that is torn down, not closed, counts as well."""
    sock = send(server, "/v1/completions", {"prompt": "Hi"})
    server.until(lambda: len(engine.streams) == 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()
    assert_all_given_up(server, engine, {"prompt": "Hi"})


@pytest.mark.parametrize("num_bytes", [0, 10, 60, 100, 120])
def test_leaving_before_the_request_is_whole(server, engine, caplog, num_bytes):
    """A head or body that breaks off submits nothing and is no error of ours."""
    content = b'{"prompt": "Hi", "max_tokens": 5}'
    head = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 33\r\n\r\n"
    with server.open_socket() as sock:
        sock.sendall((head + content)[:num_bytes])
    server.call(engine.allow, None)
    with send(server, "/v1/completions", {"prompt": "Hi", "max_tokens": 1}) as sock:
        assert sock.recv(1000).startswith(b"HTTP/1.1 200")
    assert len(engine.submitted) == 1
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []


@pytest.mark.parametrize("num_times", [10, pytest.param(50, marks=pytest.mark.slow)])
def test_leaving_fifty_times(server, engine, num_times):
    """PUBLIC_ISSUES 1.11, 1.14: the same client may break off and come back without end."""
    for stream in [True, False] * (num_times // 2):
        with send(server, "/v1/completions", {"prompt": "Hi", "stream": stream, "request_id": "same"}):
            server.until(lambda: len(engine.streams) == 1)
        server.until(lambda: not engine.streams)
    assert len(engine.ended) == num_times


def test_a_neighbour_does_not_notice(server, engine):
    """A stream goes on, whole, while the one beside it breaks off."""
    with send(server, "/v1/completions", {"prompt": "Hi", "stream": True}) as staying:
        with send(server, "/v1/completions", {"prompt": "Hi", "stream": True}):
            server.until(lambda: len(engine.streams) == 2)
            server.call(engine.allow, 8)
            server.until(lambda: engine.permits == 0)
        server.until(lambda: len(engine.streams) == 1)
        server.call(engine.allow, None)
        received = b""
        while b"[DONE]" not in received:
            received += staying.recv(100_000)
    assert b'"finish_reason":"stop"' in received
