"""What happens beyond capacity: whether goodput holds, and whether `Retry-After` tells the truth."""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass, field

from headway.bench.target import Broken, Call, Opened, Refused, Target
from headway.clock import Clock
from headway.errors import BadSetting
from headway.report import Outcome, RunRecord
from headway.workload import WorkItem

PROBE_PAUSE_S = 0.2
RESOLUTION_S = 1.0
"""`Retry-After` has whole seconds, 1 at least: a truth below that counts as 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OverloadLoad:
    """Requests of one shape. `ttft_s` is what a good one must keep."""

    duration_s: float = 60.0
    num_prompt: int = 256
    num_output: int = 32
    ttft_s: float = 3.0
    num_users: int = 16
    seed: int = 0

    def __post_init__(self) -> None:
        """Check the bounds. Raises `BadSetting`."""
        for name in ("duration_s", "num_prompt", "num_output", "ttft_s", "num_users"):
            if not 0 < getattr(self, name) < 1e6:
                raise BadSetting(f"{name} is {getattr(self, name)}; it must be above 0 and below a million")

    def at_rate(self, rate: float) -> list[WorkItem]:
        """Poisson arrivals at so many requests per second."""
        chance = random.Random(f"{self.seed} {rate:.6f}")
        items: list[WorkItem] = []
        at_s = chance.expovariate(rate)
        while at_s < self.duration_s:
            items.append(self._item(f"r{len(items)}", chance, at_s=at_s))
            at_s += chance.expovariate(rate)
        return items

    def closed(self) -> list[WorkItem]:
        """Users who ask again as soon as they are answered; the plan's duration ends them."""
        chance = random.Random(self.seed)
        num_turns = max(20, math.ceil(self.duration_s))  # each is made before the load begins, which takes time
        return [
            self._item(f"u{user}-{turn}", chance, session=f"u{user}", turn=turn, at_s=0.0 if turn == 0 else None)
            for user in range(self.num_users)
            for turn in range(num_turns)
        ]

    def _item(
        self, name: str, chance: random.Random, *, at_s: float | None, session: str = "", turn: int = 0
    ) -> WorkItem:
        return WorkItem(
            id=name,
            num_prompt=self.num_prompt,
            num_output=self.num_output,
            max_output=self.num_output,
            at_s=at_s,
            session=session,
            turn=turn,
            seed=chance.randrange(1 << 31),
        )

    def goodput(self, run: RunRecord) -> float:
        """Whole answers per second whose first token came in time."""
        good = [record for record in run.requests if record.outcome is Outcome.OK and _in_time(record.ttft_s, self)]
        return len(good) / self.duration_s


def sustained(run: RunRecord, load: OverloadLoad) -> float:
    """Requests' worth of tokens per second for users who always ask: they keep the server busy from the start.

    A prompt counts once its first token came, an answer by the part that had come when the time was over.
    """
    num_tokens = 0.0
    for record in run.requests:
        if record.first_s is not None and record.first_s < load.duration_s:
            last_s = record.last_s or record.first_s
            took_s = max(last_s - record.first_s, 1e-9)
            share = min(1.0, (load.duration_s - record.first_s) / took_s)
            num_tokens += record.num_prompt + share * record.num_output
    return num_tokens / load.duration_s / (load.num_prompt + load.num_output)


@dataclass(slots=True)
class Probe:
    """Sends one request now and then. Where it is refused, it is sent again until it is let in: that is the truth.

    `pairs` are (what Retry-After said, when it was let in), seconds from the refusal.
    """

    target: Target
    clock: Clock
    call: Call
    pairs: list[tuple[float, float]] = field(default_factory=list)

    async def run(self, until_s: float, every_s: float = 0.5) -> None:
        """Probe until a moment on the clock; a wait that has not ended by then counts for nothing."""
        while self.clock.now() < until_s:
            promised_s = await self._try()
            refused_s = self.clock.now()
            if promised_s is not None:
                while await self._try() is not None:
                    if self.clock.now() >= until_s:
                        return
                    await asyncio.sleep(PROBE_PAUSE_S)
                self.pairs.append((promised_s, self.clock.now() - refused_s))
            await asyncio.sleep(every_s)

    async def _try(self) -> float | None:
        """Seconds of Retry-After where it was refused; None where it was let in, and then given up."""
        try:
            async with aclosing(self.target.stream(self.call)) as pieces:
                async for piece in pieces:
                    if isinstance(piece, Opened):
                        return None
        except Refused as error:
            return error.retry_after_s if error.retry_after_s is not None else RESOLUTION_S
        except Broken:
            return None
        return None


def share_within(pairs: Sequence[tuple[float, float]], factor: float = 2.0) -> float | None:
    """Share of promises within a factor of the truth; None without any."""
    if not pairs:
        return None
    ratios = [max(promised, RESOLUTION_S) / max(truth, RESOLUTION_S) for promised, truth in pairs]
    return sum(1 / factor <= ratio <= factor for ratio in ratios) / len(ratios)


def _in_time(ttft_s: float | None, load: OverloadLoad) -> bool:
    return ttft_s is not None and math.isfinite(ttft_s) and ttft_s <= load.ttft_s
