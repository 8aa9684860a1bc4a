"""Devices, real and pretended: they run batches and return tokens.

Must not know: the scheduler, the block pool or the clock on the wall; block tables come inside the batch.
Start reading at `base`. Executors that load models are imported from their own modules (`reference` defines correct
results), so that simulations stay free of them.
"""

from headway.executor.base import Capacity, Executor, Pending
from headway.executor.simulated import SimulatedExecutor

__all__ = ["Capacity", "Executor", "Pending", "SimulatedExecutor"]
