"""One run of the engine in this process: what its clients saw, and every decision it made."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from headway.bench import Call, EngineTarget, Progress, Runner, RunPlan
from headway.engine import Engine, scheduling_facts
from headway.interruptible import run_interruptible
from headway.obs.decision_log import DecisionLog
from headway.obs.rotating import RotatingFile
from headway.report import RunRecord
from headway.sim.calibration import Observation, StepListener
from headway.sim.replay import Replay, replay
from headway.workload import WorkItem, Workload

_MOST_LOG = 256 << 20


class RandomIds:
    """Prompts of any tokens: no two alike, so that no cache finds anything."""

    def __init__(self, vocab_size: int) -> None:
        self._vocab_size = vocab_size

    def call(self, item: WorkItem) -> Call:
        """A call of exactly `num_prompt` ids."""
        rng = random.Random(f"{item.id}/{item.seed}")
        prompt = [rng.randrange(self._vocab_size) for _ in range(item.num_prompt)]
        return Call(id=item.id, prompt=prompt, num_prompt=item.num_prompt, num_output=item.num_output, seed=item.seed)


@dataclass(frozen=True, slots=True)
class LiveRun:
    """What clients saw, every decision made again, and what the steps took.

    The run began at `start_s` on the engine's clock.
    """

    record: RunRecord
    replayed: Replay
    steps: Sequence[Observation]
    start_s: float


def run_live(engine: Engine, workload: Workload, on_progress: Callable[[Progress], None]) -> LiveRun:
    """Send a workload to an idle engine, then decide its steps again with their recorded times.

    The engine's thread is stopped at the end, its executor stays open. Raises `KeyboardInterrupt` where the run is
    interrupted.
    """
    with TemporaryDirectory() as folder:
        path = Path(folder, "steps.jsonl")
        file = RotatingFile(path, _MOST_LOG)
        log = DecisionLog(file, scheduling_facts(engine), block_size=engine.limits.block_size, max_bytes=_MOST_LOG)
        listener = StepListener()
        engine.core.listen(log.on_events)
        engine.core.listen(listener.on_events)
        try:
            record, start_s = run_interruptible(_send(engine, workload, on_progress))
        finally:
            log.close()
        return LiveRun(record, replay(path), listener.found, start_s)


async def _send(engine: Engine, workload: Workload, on_progress: Callable[[Progress], None]) -> tuple[RunRecord, float]:
    """What clients saw, and when it began."""
    async with EngineTarget(engine) as target:
        calls = RandomIds(engine.model.vocab_size)
        plan = RunPlan.of(workload, num_warmups=2)
        runner = Runner(target, calls, engine.clock, plan, on_progress=on_progress)
        record = await runner.run_whole()
        return record, runner.start_s
