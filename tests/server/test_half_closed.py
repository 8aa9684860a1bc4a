"""A client that shuts down its sending side is gone, but for what can be told it at once."""

import socket

import pytest
import uvloop

from headway.core import FinishReason
from headway.server import ServerConfig, bounded
from tests.support.fake_engine import FakeEngine
from tests.support.live_server import LiveServer, live

pytestmark = pytest.mark.server


def exchange(server, message):
    """Send it, shut down the sending side, and read to the end."""
    with server.open_socket() as sock:
        sock.sendall(message)
        sock.shutdown(socket.SHUT_WR)
        received = b""
        while piece := sock.recv(65536):
            received += piece
    return received


def post(body):
    head = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    return head % len(body) + body


@pytest.mark.parametrize("path", ["/health", "/v1/models", "/metrics"])
def test_what_is_known_is_told(monkeypatch, path):
    """As `nc -N` and simple probes ask; then the connection is closed, though it could have been kept."""
    monkeypatch.setattr(bounded, "LAST_WORD_S", 20.0)  # the end comes with the answer, not with the time
    with live(FakeEngine()) as server:
        received = exchange(server, f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    assert received.startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize("stream", [b"true", b"false"])
def test_what_must_be_computed_is_given_up(stream):
    """Nobody is computed for who can no more be told from a client that closed: the request is aborted."""
    engine = FakeEngine()
    engine.permits = 0
    with live(engine) as server:
        received = exchange(server, post(b'{"prompt": "Hi", "stream": %b}' % stream))
        server.until(lambda: not engine.streams)
    assert [reason for _, reason in engine.ended] == [FinishReason.ABORT]
    assert b"[DONE]" not in received


def test_a_body_that_will_not_come_is_not_waited_for():
    """Half a request is none: nothing is submitted, and the connection is closed."""
    engine = FakeEngine()
    with live(engine) as server:
        assert exchange(server, post(b'{"prompt": "Hi"}')[:-4]) == b""
    assert engine.submitted == []


def test_the_same_on_the_loop_that_is_used_in_earnest(monkeypatch):
    """`headway serve` runs on uvloop, which has its own idea of an end of file."""
    engine = FakeEngine()
    usual_s = bounded.LAST_WORD_S
    monkeypatch.setattr(bounded, "LAST_WORD_S", 20.0)
    with UvloopServer(engine, ServerConfig()) as server:
        assert exchange(server, b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n").startswith(b"HTTP/1.1 200")
        monkeypatch.setattr(bounded, "LAST_WORD_S", usual_s)
        server.call(setattr, engine, "permits", 0)
        exchange(server, post(b'{"prompt": "Hi"}'))
        server.until(lambda: not engine.streams)
    assert [reason for _, reason in engine.ended] == [FinishReason.ABORT]


class UvloopServer(LiveServer):
    """The live server on uvloop."""

    run = staticmethod(uvloop.run)
