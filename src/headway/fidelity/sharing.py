"""How many blocks a run's prompts shared, from its own record of memory.

A file of lengths does not say which prompts begin alike, but with a prefix cache that decides how many fit. Where the
simulation without sharing stands at the same queues as the run, it needs more blocks than the run did: these were
shared. Nothing here looks at latencies.
"""

from __future__ import annotations

from collections.abc import Sequence

from headway.fidelity.measured import Tick
from headway.report import StepSample

_NEAR_S = 1.0


def shared_blocks(ticks: Sequence[Tick], steps: Sequence[StepSample], num_blocks: int) -> int:
    """Blocks that the run saved by sharing, before anything was preempted; 0 where nothing can be compared."""
    shortage_s = next((step.start_s for step in steps if step.num_preempted), float("inf"))
    savings = [
        (step.kv_use - tick.kv_use) * num_blocks
        for tick in ticks
        if tick.at_s < shortage_s and (step := _same_queues(tick, steps)) is not None and step.kv_use is not None
    ]
    return max(0, round(max(savings, default=0.0)))


def _same_queues(tick: Tick, steps: Sequence[StepSample]) -> StepSample | None:
    """The step with the tick's running sequences, and nearly its waiting ones, closest in time."""
    alike = [
        step
        for step in steps
        if abs(step.start_s - tick.at_s) <= _NEAR_S
        and step.num_running == tick.num_running
        and abs(step.num_waiting - tick.num_waiting) <= 1
    ]
    return min(
        alike,
        key=lambda step: (abs(step.num_waiting - tick.num_waiting), abs(step.start_s - tick.at_s)),
        default=None,
    )
