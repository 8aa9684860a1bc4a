"""A system under test as a process: started, timed until it is ready, watched, ended."""

from __future__ import annotations

import contextlib
import http.client
import os
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

START_TIMEOUT_S = 120.0
POLL_S = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """A server that answers: its URL, its process, and the seconds from its start to its first answer."""

    url: str
    pid: int
    start_s: float

    @property
    def resident_bytes(self) -> int:
        """Memory of the process that is in RAM."""
        return int(Path(f"/proc/{self.pid}/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGESIZE")


def free_port() -> int:
    """A port nobody listens on now."""
    with socket.create_server(("127.0.0.1", 0)) as sock:
        return int(sock.getsockname()[1])


@contextlib.contextmanager
def server(command: Sequence[str], port: int, ready_path: str) -> Iterator[Running]:
    """Run `command` until the block ends; it is ready when `ready_path` on `port` answers 200.

    Raises `RuntimeError` with its last words where it ends before, or takes too long.
    """
    with tempfile.TemporaryFile() as log:
        begin_s = time.monotonic()
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=log, stderr=log)  # noqa: S603 - ours
        try:
            while not _answers(port, ready_path):
                if process.poll() is not None or time.monotonic() - begin_s > START_TIMEOUT_S:
                    log.seek(0)
                    raise RuntimeError(f"{command[0]} did not start: {log.read()[-2000:].decode(errors='replace')}")
                time.sleep(POLL_S)
            yield Running(url=f"http://127.0.0.1:{port}", pid=process.pid, start_s=time.monotonic() - begin_s)
        finally:
            end(process)


def end(process: subprocess.Popen[bytes]) -> None:
    """Ask it to leave, then make it."""
    if process.stdin is not None:
        process.stdin.close()
    for number in (signal.SIGTERM, signal.SIGTERM, signal.SIGKILL):
        if process.poll() is None:
            process.send_signal(number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(5.0)


def _answers(port: int, path: str) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5.0)
    try:
        connection.request("GET", path)
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
