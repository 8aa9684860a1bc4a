"""What goes over the wire while an answer is streamed."""

import json
import socket

import httpx
import pytest

from headway.errors import ExecutorFault
from headway.server import ServerConfig
from headway.server.serve import bind
from tests.support import sse
from tests.support.fake_engine import FakeEngine
from tests.support.live_server import live

pytestmark = pytest.mark.server

BODY = {"prompt": "Hi", "stream": True, "max_tokens": 50}


@pytest.fixture
def engine():
    return FakeEngine()


def read_comments(lines, num):
    """Read until that many comments came; nothing but comments and empty lines may come before."""
    seen = 0
    while seen < num:
        line = next(lines)
        assert line in ("", ": keep-alive"), line
        seen += line == ": keep-alive"


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/completions", BODY),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}], "stream": True}),
    ],
)
def test_comments_keep_an_idle_stream_alive(engine, path, body):
    """PUBLIC_ISSUES 6.12, 15.7: comments come while nothing else does, before and between tokens; no token is lost."""
    engine.permits = 0
    with live(engine, keep_alive_s=0.02) as server, httpx.stream("POST", server.url + path, json=body) as answer:
        assert answer.status_code == 200
        lines = answer.iter_lines()
        read_comments(lines, 3)
        server.call(engine.allow, 1)
        while not next(lines).startswith("data: "):
            pass
        server.call(engine.allow, None)
        rest = list(lines)
    assert "data: [DONE]" in rest


def test_no_comments_when_switched_off(engine):
    """keep_alive_s = 0 sends none."""
    engine.permits = 0
    with live(engine, keep_alive_s=0, stall_timeout_s=0) as server:
        server.call(server.loop.call_later, 0.2, engine.allow, None)
        text = httpx.post(server.url + "/v1/completions", json=BODY).text
    assert ": keep-alive" not in text


def test_a_failure_after_a_comment_is_an_error_event(engine):
    """PUBLIC_ISSUES 6.13: once a comment went out, the status is 200 and a failure must be an event."""
    engine.permits, engine.faults[0] = 0, ExecutorFault("device lost")
    with (
        live(engine, keep_alive_s=0.02) as server,
        httpx.stream("POST", server.url + "/v1/completions", json=BODY) as answer,
    ):
        lines = answer.iter_lines()
        read_comments(lines, 2)
        server.call(engine.allow, None)
        data = [line.removeprefix("data: ") for line in lines if line.startswith("data: ")]
    assert json.loads(data[0])["error"]["code"] == "engine_fault"
    assert data[1:] == ["[DONE]"]


@pytest.mark.parametrize(
    "body", [BODY, {**BODY, "n": 2}, {**BODY, "max_tokens": 1}, {**BODY, "prompt": ["a", "b", "c"]}]
)
def test_the_bytes_end_as_they_should(engine, body):
    """PUBLIC_ISSUES 6.10: the terminator once, then the end of the chunked body; the connection can be used again."""
    content = json.dumps(body).encode()
    head = f"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {len(content)}\r\n\r\n"
    with live(engine) as server, server.open_socket() as sock:
        for _ in range(2):
            sock.sendall(head.encode() + content)
            received = b""
            while not received.endswith(b"\r\n0\r\n\r\n"):
                received += sock.recv(100_000)
            assert received.count(b"data: [DONE]\n\n") == 1
            assert received.endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n")
            assert b"content-type: text/event-stream" in received.lower()


def test_every_chunk_is_whole_utf8(engine):
    """Characters of up to four bytes and joined emoji arrive in pieces that are each valid, and add up."""
    engine.answer = "né€🙂👩‍👩‍👧‍👦"
    with live(engine) as server, httpx.stream("POST", server.url + "/v1/completions", json=BODY) as answer:
        pieces = list(answer.iter_raw())
    texts, _ = sse.joined(sse.events(b"".join(pieces).decode()))
    assert texts[0] == engine.answer
    assert all(piece.decode() for piece in pieces)


def test_a_reader_that_stands_still_is_given_up(engine, caplog):
    """PUBLIC_ISSUES 10.17: when nothing can be written for the time limit, the request is aborted, others go on."""
    engine.answer, engine.max_model_len = ["x" * 10_000] * 2000, 20_000
    engine.ids_of = lambda text: [5]
    body = json.dumps({"prompt": "Hi", "stream": True, "max_tokens": 10_000}).encode()
    head = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n"
    with live(engine, stall_timeout_s=0.3) as server, server.open_socket() as sock:
        sock.sendall(head % len(body) + body)
        server.until(lambda: engine.submitted)
        server.until(lambda: not engine.streams, timeout_s=30)
        assert "its client has read nothing for 0.3 s; it is aborted" in caplog.text
        assert httpx.get(server.url + "/health").status_code == 200


def test_pieces_are_sent_as_they_come():
    """Connections of the listener do not wait for an acknowledgement before they send a second piece."""
    with bind(ServerConfig(port=0)) as listener, socket.create_connection(listener.getsockname()):
        connection, _ = listener.accept()
        with connection:
            assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_many_streams_at_once(engine):
    """Sixty streams share the loop; each is whole and exact, and health answers in between."""
    import asyncio

    async def main(url):
        limits = httpx.Limits(max_connections=None)
        async with httpx.AsyncClient(limits=limits, timeout=60) as client:

            async def one():
                answer = await client.post(url + "/v1/completions", json=BODY)
                return sse.joined(sse.events(answer.text))[0][0]

            texts = await asyncio.gather(*(one() for _ in range(60)), client.get(url + "/health"))
            return texts[:-1]

    with live(engine) as server:
        assert set(asyncio.run(main(server.url))) == {engine.answer}
