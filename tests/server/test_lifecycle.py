"""From an open port to an orderly end, in a process of its own."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from headway.server import ServerConfig, create_app
from headway.server.serve import Leave
from tests.support.fake_engine import FakeEngine

pytestmark = pytest.mark.server

ROOT = Path(__file__).parents[2]
BODY = {"prompt": "Hi", "stream": True, "max_tokens": 50}


@pytest.fixture(params=["forked", pytest.param("started", marks=pytest.mark.slow)])
def process(request, nursery):
    """Start the scripted server; `started` ones import everything anew, as a user's does."""

    @contextmanager
    def start(port=0, shutdown_timeout_s=20.0, **environment):
        words = [str(port), str(shutdown_timeout_s)]
        if request.param == "forked":
            running = nursery.start("tests.support.serve_fake:main", *words, **environment)
        else:
            running = subprocess.Popen(
                [sys.executable, "-m", "tests.support.serve_fake", *words],
                cwd=ROOT,
                env=os.environ | environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        try:
            yield running
        finally:
            running.kill()
            running.communicate()

    return start


def until_not_ready(url):
    """Wait until /ready says 503, asking over the wire."""
    deadline = time.monotonic() + 10
    while httpx.get(f"{url}/ready").status_code != 503:
        assert time.monotonic() < deadline, "the signal has no effect"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_running_requests_finish_after_a_signal(process, number):
    """PUBLIC_ISSUES 10.8: not ready at once, new requests 503 on a port that stays open, running ones whole, exit 0."""
    with process(FAKE_ANSWER="x" * 30, FAKE_PERMITS="1") as running:
        url = running.stdout.readline().strip()
        assert httpx.get(f"{url}/ready").status_code == 200
        with httpx.stream("POST", f"{url}/v1/completions", json=BODY, timeout=20) as answer:
            assert answer.status_code == 200
            running.send_signal(number)
            until_not_ready(url)
            assert httpx.get(f"{url}/health").status_code == 200
            refused = httpx.post(f"{url}/v1/completions", json=BODY)
            assert (refused.status_code, refused.headers["retry-after"]) == (503, "5")
            running.send_signal(signal.SIGUSR1)  # lets the tokens flow
            lines = [line for line in answer.iter_lines() if line.startswith("data: ")]
        assert lines[-1] == "data: [DONE]"
        assert json.loads(lines[-2].removeprefix("data: "))["choices"][0]["finish_reason"] == "stop"
        _, errors = running.communicate(timeout=20)
        assert (running.returncode, errors) == (0, "")


def test_what_is_left_at_the_time_limit_is_aborted(process):
    """PUBLIC_ISSUES 10.8: a long stream gets its finish reason `abort` and the terminator; exit 0."""
    with process(shutdown_timeout_s=0.1, FAKE_PERMITS="3") as running:
        url = running.stdout.readline().strip()
        with httpx.stream("POST", f"{url}/v1/completions", json=BODY, timeout=20) as answer:
            running.send_signal(signal.SIGTERM)
            lines = [line for line in answer.iter_lines() if line.startswith("data: ")]
        assert lines[-1] == "data: [DONE]"
        assert json.loads(lines[-2].removeprefix("data: "))["choices"][0]["finish_reason"] == "abort"
        output, errors = running.communicate(timeout=20)
        assert (running.returncode, errors) == (0, "")
        assert output.split() == ["start", "begin_drain", "begin_drain", "close"]


def test_a_signal_tells_how_long_the_end_may_take(caplog):
    """Whoever pressed Ctrl-C is not left to wonder for half a minute, and learns how to end it sooner."""
    engine, config = FakeEngine(), ServerConfig(drain_delay_s=2.0, shutdown_timeout_s=30.0)
    with caplog.at_level("INFO", "headway.server.serve"):
        Leave(engine, config, create_app(engine, config)).want()
    assert caplog.messages == ["stopping: what runs has 32 s to end; a second signal ends it now"]


def test_an_idle_server_ends_at_once(process):
    """Open connections without a request do not hold it up."""
    with process() as running:
        url = running.stdout.readline().strip()
        with httpx.Client() as client:
            client.get(f"{url}/health")
            running.send_signal(signal.SIGTERM)
            _, errors = running.communicate(timeout=10)
        assert (running.returncode, errors) == (0, "")


def test_a_second_interrupt_quits_at_once(process):
    """Whoever presses Ctrl-C twice does not want to wait: the status says which signal."""
    with process(shutdown_timeout_s=60, FAKE_PERMITS="1") as running:
        url = running.stdout.readline().strip()
        with httpx.stream("POST", f"{url}/v1/completions", json=BODY, timeout=20):
            running.send_signal(signal.SIGINT)
            until_not_ready(url)
            running.send_signal(signal.SIGINT)
            running.communicate(timeout=10)
        assert running.returncode == 128 + signal.SIGINT


def test_a_taken_port_is_one_clear_line(process):
    """Exit status 2, one line that says what to do, no traceback."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with process(port=port) as running:
            output, errors = running.communicate(timeout=20)
    assert running.returncode == 2
    assert output == ""
    assert len(errors.strip().splitlines()) == 1
    assert f"127.0.0.1:{port}" in errors
    assert "--port" in errors


def test_a_body_that_never_comes_is_refused_when_the_server_leaves(process):
    """Who still sends at the end gets a 503 that may be retried elsewhere; the log holds no traceback.

    One that was answered already, and whose body is only thrown away, does not hold the end up either.
    """
    rest = b" HTTP/1.1\r\nHost: localhost\r\nContent-Length: 500\r\n\r\n{"
    with process(shutdown_timeout_s=0.1, FAKE_LAST_WORDS_S="0.1") as running:
        url = httpx.URL(running.stdout.readline().strip())
        address = (url.host, url.port)
        with socket.create_connection(address, timeout=20) as client, socket.create_connection(address) as answered:
            client.sendall(b"POST /v1/completions" + rest)
            answered.sendall(b"POST /nothing" + rest)
            assert answered.recv(4096).startswith(b"HTTP/1.1 404 ")
            assert httpx.get(url.join("/health")).status_code == 200
            running.send_signal(signal.SIGTERM)
            assert client.recv(4096).startswith(b"HTTP/1.1 503 ")
            _, errors = running.communicate(timeout=20)
        assert (running.returncode, "Traceback" in errors) == (0, False)
