"""What clients do besides asking: give up, read slowly, try again."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from headway.workload.durations import Durations
from headway.workload.lengths import Lengths


@dataclass(frozen=True, slots=True, kw_only=True)
class Habits:
    """One client's habits towards one request; fields as in `WorkItem`."""

    cancel_tokens: int | None = None
    cancel_s: float | None = None
    read_tokens_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Behaviour:
    """Shares of clients with a habit. Who gives up does so after `cancel_tokens` tokens or `cancel_after` seconds."""

    cancel_share: float = 0.0
    cancel_tokens: Lengths | None = None
    cancel_after: Durations | None = None
    slow_share: float = 0.0
    slow_tokens_s: float = 0.0
    retries: int = 0
    backoff_s: float = 1.0

    def draw(self, rng: np.random.Generator) -> Habits:
        """The habits of the next client. Draws as many random numbers whatever comes out."""
        gives_up, is_slow = rng.random(2)
        tokens = int(self.cancel_tokens.draw(rng, 1)[0]) if self.cancel_tokens else None
        after_s = self.cancel_after.draw(rng) if self.cancel_after else None
        cancels = gives_up < self.cancel_share
        return Habits(
            cancel_tokens=tokens if cancels else None,
            cancel_s=after_s if cancels else None,
            read_tokens_s=self.slow_tokens_s if is_slow < self.slow_share else None,
        )
