"""A command line to call, a tiny model to call it on, and a pretended server."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from headway.cli.main import main
from tests.support.tiny_model import write_tiny_gguf


@pytest.fixture
def headway(capsys):
    """Run a command line in this process: (status, stdout, stderr)."""

    def run(*args):
        status = main([str(arg) for arg in args])
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return run


@pytest.fixture(scope="session")
def tiny_gguf(tmp_path_factory):
    path = tmp_path_factory.mktemp("tiny") / "tiny.gguf"
    write_tiny_gguf(path)
    return path


class QuietServer(ThreadingHTTPServer):
    """Waits for its threads at the end, and takes clients that leave for granted."""

    daemon_threads = False

    def handle_error(self, request, client_address):
        pass


class FakeServer:
    """Speaks just enough of OpenAI's API. `answers` are the pieces it streams; `asked` what it was sent."""

    def __init__(self) -> None:
        self.answers = ["Par", "is."]
        self.status = 200
        self.asked = []
        self.hang = threading.Event()  # set by a test: stop before the terminator until `go_on`
        self.hanging = threading.Event()
        self.go_on = threading.Event()
        self.http = QuietServer(("127.0.0.1", 0), self._handler())
        self.url = f"http://127.0.0.1:{self.http.server_port}"

    def _handler(self):
        fake = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                self.answer_json({"data": [{"id": "fake-model"}]})

            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                fake.asked.append((self.path, self.headers.get("authorization"), body))
                if fake.status != 200:
                    self.answer_json({"error": {"message": "not like this", "type": "x", "param": None, "code": None}})
                    return
                self.send_response(200)
                self.send_header("content-type", "text/event-stream")
                self.end_headers()
                for piece in fake.answers:
                    choice = {"index": 0, "delta": {"content": piece}, "text": piece, "finish_reason": None}
                    self.wfile.write(f": ping\n\ndata: {json.dumps({'choices': [choice]})}\n\n".encode())
                if fake.hang.is_set():
                    fake.hanging.set()
                    fake.go_on.wait(20)
                self.wfile.write(b'data: {"choices": [], "usage": {}}\n\ndata: [DONE]\n\n')

            def answer_json(self, content):
                raw = json.dumps(content).encode()
                self.send_response(fake.status)
                self.send_header("content-length", str(len(raw)))
                self.end_headers()
                self.wfile.write(raw)

            def log_message(self, *args):
                pass

        return Handler


@pytest.fixture
def fake_server():
    server = FakeServer()
    thread = threading.Thread(target=server.http.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.go_on.set()
    server.http.shutdown()
    server.http.server_close()
    thread.join()
