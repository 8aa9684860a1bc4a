"""Designed batches on an idle engine's executor, in an order that a slow minute cannot bend."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from headway.clock import Clock
from headway.core import Batch
from headway.executor.base import Executor
from headway.sim.calibration.design import Probe, batch_of
from headway.sim.calibration.fit import Observation
from headway.sim.load import load_of

Progress = Callable[[str, float, float], None]
"""Called with what is being measured, the seconds it has taken, and the seconds it will take."""

_NUM_COPIES = 64
_LEAST = 60


def probe_executor(
    executor: Executor, probes: Sequence[Probe], clock: Clock, *, seconds: float, on_progress: Progress
) -> list[Observation]:
    """Measure every probe again and again, shuffled anew each time, for so long; all of them at least once,
    and enough for a fit.

    The executor must be idle, and what its cache holds is lost.
    """
    size = executor.capacity().block_size
    batches = [batch_of(probe, size) for probe in probes]
    rng = random.Random(0)
    _fill(executor)
    for batch in batches[:3]:
        executor.launch(batch).result()  # threads awake, weights in the caches
    found: list[Observation] = []
    begin_s = clock.now()
    while True:
        for batch in rng.sample(batches, len(batches)):
            on_progress("batches", min(seconds, clock.now() - begin_s), seconds)
            found.append(Observation(load_of(batch), _timed(executor, batch, clock)))
            if clock.now() - begin_s > seconds and len(found) >= max(len(batches), _LEAST):
                executor.release([lane.seq_id for batch in batches for lane in batch.lanes])
                return found


def swap_seconds(executor: Executor, clock: Clock) -> float:
    """Seconds that the copy of one block takes: what a swap costs where the host's memory is the device's."""
    num = min(_NUM_COPIES, executor.capacity().num_blocks // 2)
    if not num:
        return 0.0
    pairs = [(block, block + num) for block in range(num)]
    times = []
    for _ in range(3):
        begin_s = clock.now()
        executor.copy_blocks(pairs)
        times.append((clock.now() - begin_s) / num)
    return sorted(times)[1]


def _timed(executor: Executor, batch: Batch, clock: Clock) -> float:
    begin_s = clock.now()
    executor.launch(batch).result()
    return max(clock.now() - begin_s, 1e-9)


def _fill(executor: Executor) -> None:
    """Real contents in every block: memory that was never written is read faster than any other."""
    capacity = executor.capacity()
    executor.launch(batch_of(Probe(chunks=((capacity.block_size, 0),)), capacity.block_size)).result()
    executor.copy_blocks([(0, block) for block in range(1, capacity.num_blocks)])
