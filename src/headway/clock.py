"""Time is an argument: everything that needs it receives a `Clock`."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Seconds on a scale that never goes back. Its zero means nothing."""

    def now(self) -> float:
        """The present time, in seconds."""
        ...


class WallClock:
    """Real time, unaffected by adjustments of the system clock."""

    def now(self) -> float:
        """Seconds since an arbitrary start."""
        return time.monotonic()


class VirtualClock:
    """Time that moves only when told to. Simulations and tapes count their units with it."""

    def __init__(self, start_s: float = 0.0) -> None:
        self._now_s = start_s

    def now(self) -> float:
        """The present virtual time, in seconds (or units, in a tape)."""
        return self._now_s

    def advance(self, seconds: float) -> None:
        """Move forward by `seconds`, which must not be negative."""
        assert seconds >= 0, f"time cannot go back by {-seconds} s"
        self._now_s += seconds

    def advance_to(self, moment_s: float) -> None:
        """Move forward to `moment_s`; a moment already past leaves the clock alone."""
        self._now_s = max(self._now_s, moment_s)
