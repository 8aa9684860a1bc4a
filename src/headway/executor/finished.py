"""Steps that are over when `launch` returns: what executors share that compute on the caller's thread."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from headway.core import Batch, StepResult
from headway.errors import ExecutorFault
from headway.executor.base import Executor

_STEP_ERRORS = (ArithmeticError, LookupError, MemoryError, RuntimeError, ValueError)
"""What a step may raise for want of memory or for numbers that cannot be. A TypeError is a mistake of ours."""


@dataclass(slots=True)
class Finished:
    """A step that is over: `launch` computed it at once."""

    outcome: StepResult | ExecutorFault

    def result(self) -> StepResult:
        """The step's tokens, or its fault raised."""
        if isinstance(self.outcome, ExecutorFault):
            raise self.outcome
        return self.outcome


def run_at_once(executor: Executor, batch: Batch, compute: Callable[[Batch], StepResult]) -> Finished:
    """The batch's copies in their order, then `compute` on it, timed; every fault of the step waits in the outcome.

    A step that ended in a fault may be launched again without its copies, which were done: it writes the same slots and
    draws the same tokens.
    """
    start_s = time.perf_counter()
    try:
        executor.swap_out(batch.swap_out)
        executor.swap_in(batch.swap_in)
        executor.copy_blocks(batch.copies)
        result = compute(batch)
    except ExecutorFault as fault:
        return Finished(fault)
    except _STEP_ERRORS as error:
        return Finished(ExecutorFault(f"the step failed: {type(error).__name__} {error}".rstrip()))
    result.elapsed_s = time.perf_counter() - start_s
    return Finished(result)
