"""A log file of lines whose size is bounded, and which nobody has to wait for."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar

from headway.errors import BadSetting

RETRY_S = 30.0
Entry = TypeVar("Entry")
_log = logging.getLogger(__name__)


class RotatingFile:
    """Whole lines, or none of a line: what a full disk left of one is cut off again.

    At most `max_bytes` in the file and as many in the one before it, `PATH.1`. A file that exists already becomes
    that one. Raises `BadSetting` when it cannot be opened at the start.
    """

    def __init__(self, path: Path, max_bytes: int) -> None:
        self._path, self._max_bytes = path, max_bytes
        self._size = 0
        try:
            if path.exists() and not path.is_file():  # a folder or a device must not be renamed
                raise BadSetting(f"cannot record to {path}: it is no ordinary file; name one, or one that is yet to be")
            if path.exists() and path.stat().st_size:
                path.replace(_older(path))
            self._file = path.open("wb", buffering=0)
        except OSError as error:
            raise BadSetting(f"cannot record to {path}: {error.strerror or error}") from None

    def write(self, line: bytes) -> None:
        """Add a line, its end included. Raises `OSError`; then nothing of the line is in the file."""
        if self._size and self._size + len(line) > self._max_bytes:
            self._turn()
        try:
            num = self._file.write(line)
        except OSError:
            self._cut()
            raise
        if num != len(line):
            self._cut()
            raise OSError("the disk is full")
        self._size += len(line)

    def close(self) -> None:
        """Nothing is written after it."""
        self._file.close()

    def _cut(self) -> None:
        self._file.truncate(self._size)
        self._file.seek(self._size)

    def _turn(self) -> None:
        """The file becomes the one before, and a new one begins. The old one stays in use where that fails."""
        self._path.replace(_older(self._path))
        file = self._path.open("wb", buffering=0)
        self._file.close()
        self._file, self._size = file, 0


class LineWriter(Generic[Entry]):
    """Writes lines in a thread of its own. Lines are lost, and counted, where the disk is full or too slow.

    `put` never waits and never raises: it is called where tokens are made. Each entry becomes its line by `encode`,
    in the writer's thread. After a failure nothing is tried for `retry_s` seconds.
    """

    def __init__(
        self,
        file: RotatingFile,
        encode: Callable[[Entry], bytes],
        *,
        capacity: int = 10_000,
        retry_s: float = RETRY_S,
    ) -> None:
        self._file, self._encode, self._retry_s = file, encode, retry_s
        self._entries: queue.Queue[Entry | None] = queue.Queue(capacity)
        self._num_lost = 0
        self._broken_s: float | None = None
        self._thread = threading.Thread(target=self._work, name="headway-record", daemon=True)
        self._thread.start()

    @property
    def num_lost(self) -> int:
        """Entries that are not in the file."""
        return self._num_lost

    def put(self, entry: Entry) -> None:
        """Hand over an entry."""
        try:
            self._entries.put_nowait(entry)
        except queue.Full:
            self._num_lost += 1

    def close(self, timeout_s: float = 5.0) -> None:
        """Write what was handed over, for at most `timeout_s` seconds."""
        try:
            self._entries.put(None, timeout=timeout_s)
        except queue.Full:
            return
        self._thread.join(timeout_s)

    def _work(self) -> None:
        while (entry := self._entries.get()) is not None:
            self._write(entry)
        self._file.close()
        if self._num_lost:
            _log.warning("%d lines of the recording were lost", self._num_lost)

    def _write(self, entry: Entry) -> None:
        if self._broken_s is not None and time.monotonic() - self._broken_s < self._retry_s:
            self._num_lost += 1
            return
        try:
            self._file.write(self._encode(entry))
        except OSError as error:
            if self._broken_s is None:
                _log.warning("recording stopped: %s; it is tried again every %g s", error, self._retry_s)
            self._broken_s = time.monotonic()
            self._num_lost += 1
        else:
            if self._broken_s is not None:
                _log.warning("recording goes on; %d lines were lost", self._num_lost)
            self._broken_s = None


def _older(path: Path) -> Path:
    return path.with_name(path.name + ".1")
