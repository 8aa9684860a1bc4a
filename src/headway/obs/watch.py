"""Everything that is kept about one engine beside its latencies, behind one listener."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence

from headway.core import Event
from headway.obs.live import LiveView
from headway.obs.token_ledger import TokenLedger
from headway.obs.work import Standing, WorkFigures

logger = logging.getLogger(__name__)

_QUIET_S = 60.0


class Watch:
    """The token ledger, figures about the work, and the live view of one engine. `on_events` is the listener."""

    def __init__(self, stats: Callable[[], Standing], block_size: int) -> None:
        self.ledger = TokenLedger(max(1, block_size))
        self.work = WorkFigures(stats, self.ledger)
        self.live = LiveView()
        self._complained_at = -_QUIET_S
        self.live_spent_s = 0.0
        """Processor seconds spent on following events for the live view, since the start."""

    def on_events(self, events: Sequence[Event]) -> None:
        """Follow what happens. Never raises: a mistake here must not stop the engine, only be logged."""
        try:
            self.ledger.on_events(events)
            self.work.on_events(events)
            began_s = time.thread_time()
            self.live.on_events(events)
            self.live_spent_s += time.thread_time() - began_s
        except Exception:
            if time.monotonic() - self._complained_at >= _QUIET_S:
                self._complained_at = time.monotonic()
                logger.exception("the books of tokens and the live view are incomplete; serving goes on")
