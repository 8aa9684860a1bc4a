"""A clock that keeps step with the machine: what takes hours is measured as at one speed."""

from __future__ import annotations

import math
import statistics
import threading
from collections.abc import Sequence
from dataclasses import replace

from headway.clock import Clock
from headway.core import Batch, BlockPair, Lane
from headway.engine import Engine, EngineCore
from headway.errors import BadSetting
from headway.executor.base import Capacity, Executor, Pending

GLANCE_TOKENS = 16
NUM_TRIES = 3
PERIOD_S = 1.0
MEMORY_S = 5.0
MOST_SHARE = 0.2
"""Of the time, at most, goes into looks: on a slow device they are rarer."""


class PacedClock:
    """Time as a machine of constant speed would have it: while this one is slow, the clock is. Any thread may read it.

    A second at pace 1 is one of the inner clock's; at pace 0 it stands still.
    """

    def __init__(self, inner: Clock) -> None:
        self._inner = inner
        self._lock = threading.Lock()
        self._pace = 1.0
        self._since_s = inner.now()
        self._now_s = self._ran_s = 0.0

    def now(self) -> float:
        """The present time, in seconds at pace 1."""
        with self._lock:
            return self._now_s + self._pace * (self._inner.now() - self._since_s)

    @property
    def pace(self) -> float:
        """How many of its seconds pass in one of the inner clock's."""
        return self._pace

    @property
    def ran_s(self) -> float:
        """Seconds of the inner clock, without those in which this one stood still."""
        with self._lock:
            return self._ran_s + (self._inner.now() - self._since_s if self._pace else 0.0)

    def go_on_at(self, pace: float) -> None:
        """Run at another pace from now on; 0 stops it."""
        assert pace >= 0, f"time cannot go back at {pace}"
        with self._lock:
            passed_s = self._inner.now() - self._since_s
            self._since_s += passed_s
            self._now_s += self._pace * passed_s
            self._ran_s += passed_s if self._pace else 0.0
            self._pace = pace


class Pacemaker:
    """An executor on another one, which sets a clock's pace by what a small step takes that is always the same.

    The step is timed before a launch, once in `PERIOD_S` at most; the clock stands still meanwhile, so no request pays
    for it. Of `NUM_TRIES` the shortest counts: a hiccup says nothing of the machine's speed. What was seen fades over
    `MEMORY_S`. Nobody looks before `keep`.
    `block_ids` are blocks of the executor's pool that nobody else writes to.
    """

    def __init__(self, inner: Executor, time: Clock, block_ids: Sequence[int]) -> None:
        assert inner.capacity().in_flight == 1, "a step that waits for others tells nothing of the speed"
        self.clock = PacedClock(time)
        self._inner, self._time = inner, time
        lane = Lane("pace", token_ids=[0, 1] * (GLANCE_TOKENS // 2), start=0, block_table=list(block_ids))
        self._step = Batch(step=0, lanes=[lane])
        self.usual_s = self._recent_s = 0.0
        self._seen_s: list[float] = []
        self._looked_s, self._due_s = 0.0, math.inf

    def keep(self, usual_s: float | None = None) -> None:
        """Pace 1 is from now on where the step takes `usual_s`; without it, what it takes now."""
        found_s = statistics.median(self._glance_s() for _ in range(2 * NUM_TRIES + 1))
        self.usual_s, self._recent_s = usual_s or found_s, found_s
        self._looked_s = self._time.now()
        self._due_s = self._looked_s + PERIOD_S
        self._seen_s = [found_s]
        self.clock.go_on_at(self.usual_s / found_s)

    def settle(self) -> float:
        """Pace 1 is from now on the middle of all looks since `keep`; returns how much more is done in a second then.

        What a machine does at the moment at which somebody begins is not what it usually does.
        """
        before_s, self.usual_s = self.usual_s, statistics.median(self._seen_s)
        self.clock.go_on_at(self.usual_s / self._recent_s)
        return before_s / self.usual_s

    def launch(self, batch: Batch) -> Pending:
        """Look at the machine where it is time to, then start the step."""
        if self._time.now() >= self._due_s:
            self._look()
        return self._inner.launch(batch)

    def capacity(self) -> Capacity:
        """The other executor's; the pacemaker's own blocks are among these."""
        return self._inner.capacity()

    def swap_out(self, pairs: list[BlockPair]) -> None:
        """Copy device blocks to host blocks."""
        self._inner.swap_out(pairs)

    def swap_in(self, pairs: list[BlockPair]) -> None:
        """Copy host blocks to device blocks."""
        self._inner.swap_in(pairs)

    def copy_blocks(self, pairs: list[BlockPair]) -> None:
        """Copy device blocks onto device blocks."""
        self._inner.copy_blocks(pairs)

    def release(self, seq_ids: list[str]) -> None:
        """Forget what is kept for these sequences."""
        self._inner.release(seq_ids)

    def close(self) -> None:
        """Close the other executor."""
        self._inner.close()

    def _look(self) -> None:
        begin_s = self._time.now()
        fading = -math.expm1((self._looked_s - begin_s) / MEMORY_S)
        self.clock.go_on_at(0.0)
        try:
            self._seen_s.append(seen_s := self._glance_s())
            self._recent_s += fading * (seen_s - self._recent_s)
        finally:  # a look that failed fails the step, but time goes on
            self._looked_s = self._time.now()
            self._due_s = self._looked_s + max(PERIOD_S, (self._looked_s - begin_s) * (1.0 / MOST_SHARE - 1.0))
            self.clock.go_on_at(self.usual_s / self._recent_s)

    def _glance_s(self) -> float:
        tries = []
        for _ in range(NUM_TRIES):
            begin_s = self._time.now()
            self._inner.launch(self._step).result()
            tries.append(self._time.now() - begin_s)
        return max(min(tries), 1e-9)  # a pretended device may take no time at all


def on_even_time(engine: Engine) -> tuple[Engine, Pacemaker]:
    """The same engine on a paced clock, and what sets its pace. Raises `BadSetting` for a pool without room for that.

    A block or so is taken from its pool; its scheduler is not to be used any more: make another with `with_policy`.
    """
    limits = engine.limits
    num_own = -(-GLANCE_TOKENS // limits.block_size)
    num_left = limits.num_blocks - num_own
    if num_left < 1:
        raise BadSetting(
            f"the pool has {limits.num_blocks} blocks of {limits.block_size} tokens; {num_own} of them are needed to "
            "follow the machine's speed: give it more, or an arrival rate of your own"
        )
    own = range(num_left, limits.num_blocks)
    maker = Pacemaker(engine.core.executor, engine.clock, own)
    limits = replace(limits, num_blocks=num_left, max_model_len=min(limits.max_model_len, num_left * limits.block_size))
    core = EngineCore(engine.core.scheduler, maker, maker.clock)
    return replace(engine, core=core, clock=maker.clock, limits=limits), maker
