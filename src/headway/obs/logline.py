"""One line about the traffic, every few seconds while there is any."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

from headway.obs.load import Load

logger = logging.getLogger("headway.traffic")


class TrafficLog:
    """Turns two snapshots of the load into rates. Says nothing about an interval in which nothing happened."""

    def __init__(self, load: Callable[[], Load], now: Callable[[], float] = time.monotonic) -> None:
        self._load, self._now = load, now
        self._last, self._at = load(), now()

    async def run(self, interval_s: float) -> None:
        """Log a line every `interval_s` seconds until cancelled; 0 logs none."""
        while interval_s > 0:
            await asyncio.sleep(interval_s)
            if line := self.line():
                logger.info(line)

    def line(self) -> str:
        """The line about the time since the last call; empty without traffic."""
        before, began_s = self._last, self._at
        load, now_s = self._load(), self._now()
        self._last, self._at = load, now_s
        num_prompt = load.num_prompt_tokens - before.num_prompt_tokens
        num_output = load.num_output_tokens - before.num_output_tokens
        if not (num_prompt or num_output or load.num_running or load.num_waiting or load.num_swapped):
            return ""
        elapsed_s = max(now_s - began_s, 1e-9)
        parts = [
            f"running {load.num_running}, waiting {load.num_waiting}",
            f"swapped {load.num_swapped}" if load.num_swapped else "",
            f"prompt {num_prompt / elapsed_s:.1f} tok/s",
            f"output {num_output / elapsed_s:.1f} tok/s",
            f"KV {load.kv_usage:.1%}",
            f"hits {(load.num_cached_tokens - before.num_cached_tokens) / num_prompt:.1%}" if num_prompt else "",
        ]
        return ", ".join(part for part in parts if part)
