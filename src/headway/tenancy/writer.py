"""Writes usage behind the engine's back, in a thread of its own: serving never waits for a disk."""

from __future__ import annotations

import logging
import threading

from headway.clock import Clock, WallClock
from headway.tenancy.store import UsageStore
from headway.tenancy.usage import UsageBook

logger = logging.getLogger(__name__)

PERIOD_S = 1.0
"""A crash loses at most the usage of the last so many seconds, and of the write under way."""

_QUIET_S = 60.0


class UsageWriter:
    """Moves new usage from a book into a store every `period_s`, and once more at the end.

    What a store does not take (a full disk, a database that is away) stays in the book and is tried again; the log
    says so once a minute. Memory does not grow with it: a day, a tenant and a model are one row however long it takes.
    """

    def __init__(
        self, book: UsageBook, store: UsageStore, *, period_s: float = PERIOD_S, clock: Clock | None = None
    ) -> None:
        self._book, self._store, self._period_s = book, store, period_s
        self._clock = clock or WallClock()
        self._complained_at: float | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="headway-usage", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def close(self) -> None:
        """Write what is left, and end. Idempotent."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()

    def write(self) -> bool:
        """Write what is new now. False where the store did not take it."""
        rows = self._book.take()
        if not rows:
            return True
        try:
            self._store.add(rows)
        except Exception as error:  # noqa: BLE001 - whatever a database driver raises, nothing may be lost by it
            self._book.put_back(rows)
            self._complain(error)
            return False
        self._complained_at = None
        return True

    def _run(self) -> None:
        while not self._stop.wait(self._period_s):
            self.write()
        self.write()

    def _complain(self, error: Exception) -> None:
        now_s = self._clock.now()
        if self._complained_at is None or now_s - self._complained_at >= _QUIET_S:
            self._complained_at = now_s
            logger.error("usage cannot be written and is kept in memory meanwhile: %s", error)
