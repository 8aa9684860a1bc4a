"""What the engine asks of a device, real or pretended."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from headway.core import Batch, BlockPair, StepResult


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """What an executor can hold. `in_flight` batches may be pending at once (1 on a CPU)."""

    num_blocks: int
    block_size: int
    num_host_blocks: int = 0
    in_flight: int = 1


class Pending(Protocol):
    """A launched step."""

    def result(self) -> StepResult:
        """Wait for the step. Raises `ExecutorFault` when it failed."""
        ...


class Executor(Protocol):
    """Runs batches. It receives block tables inside the batch and knows neither scheduler nor pool."""

    def capacity(self) -> Capacity:
        """Blocks and batches it can hold; constant after construction."""
        ...

    def launch(self, batch: Batch) -> Pending:
        """Start one step: first the batch's copies (swap out, swap in, copy blocks, in this order), then its lanes.

        The batch is not kept after `result()` returned.
        """
        ...

    def swap_out(self, pairs: list[BlockPair]) -> None:
        """Copy device blocks to host blocks: pairs of (device, host)."""
        ...

    def swap_in(self, pairs: list[BlockPair]) -> None:
        """Copy host blocks to device blocks: pairs of (host, device)."""
        ...

    def copy_blocks(self, pairs: list[BlockPair]) -> None:
        """Copy device blocks onto device blocks: pairs of (from, to); for forks that write a shared block."""
        ...

    def release(self, seq_ids: list[str]) -> None:
        """Forget what is kept for these sequences (sampler state and the like); unknown ids are fine."""
        ...

    def close(self) -> None:
        """Give back memory and threads; idempotent."""
        ...
