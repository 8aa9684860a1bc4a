"""A server of one's own for an experiment: a process, its tenants, and its end."""

from __future__ import annotations

import contextlib
import hashlib
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from headway.errors import HeadwayError

START_TIMEOUT_S = 300.0


class NoServer(HeadwayError):
    """The experiment's own server did not come up."""


@dataclass(frozen=True, slots=True)
class OwnServer:
    """Where it is, a key for each of its tenants, and its process id."""

    url: str
    keys: dict[str, str]
    pid: int


@contextlib.contextmanager
def own_server(flags: Sequence[str], tenants: Sequence[str] = ()) -> Iterator[OwnServer]:
    """Start `headway serve` with these flags on a free port, with a key for each tenant.

    It is ended with the block, whatever happens. Raises `NoServer` with the server's last words.
    """
    keys = {name: f"hw-{secrets.token_hex(16)}" for name in tenants}
    with tempfile.TemporaryDirectory(prefix="headway-") as folder:
        words = [*flags, *_tenants_file(Path(folder), keys)]
        url = f"http://127.0.0.1:{_free_port()}"
        command = [
            *(sys.executable, "-m", "headway"),
            *("serve", "--port", url.rpartition(":")[2], "--log-level", "warning", *words),
        ]
        with (Path(folder) / "server.log").open("wb") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log)  # noqa: S603 - this very program
        try:
            _wait(process, url, Path(folder) / "server.log")
            yield OwnServer(url, keys, process.pid)
        finally:
            _end(process)


def _tenants_file(folder: Path, keys: dict[str, str]) -> list[str]:
    if not keys:
        return []
    lines = []
    for name, key in keys.items():
        digest = hashlib.sha256(key.encode()).hexdigest()
        lines += [f"[tenants.{name}]", f"[[tenants.{name}.keys]]", f'id = "{name}"', f'sha256 = "{digest}"']
    path = folder / "tenants.toml"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return ["--tenants", str(path)]


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as sock:
        return int(sock.getsockname()[1])


def _wait(process: subprocess.Popen[bytes], url: str, log: Path) -> None:
    import httpx

    deadline_s = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline_s:
        if process.poll() is not None:
            break
        with contextlib.suppress(httpx.HTTPError):
            if httpx.get(f"{url}/ready", timeout=5.0).status_code == 200:
                return
        time.sleep(0.1)
    words = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    last = words[-1].removeprefix("headway: ") if words else "it said nothing"
    raise NoServer(f"the server did not start: {last}")


def _end(process: subprocess.Popen[bytes]) -> None:
    for number in (signal.SIGTERM, signal.SIGTERM):  # the second says: now
        if process.poll() is not None:
            return
        process.send_signal(number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(5.0)
    if process.poll() is None:
        process.kill()
        process.wait()
