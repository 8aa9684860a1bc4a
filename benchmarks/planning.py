"""How long the scheduler itself takes: plan and commit of one step, by policy, in milliseconds.

    python benchmarks/planning.py [POLICY ...] [--running 256] [--steps 300] [--json]
    python benchmarks/planning.py [POLICY ...] --share [--model MODEL]

All sequences are decoding; what the executor does is not counted. The target is 1.5 ms at the median for 256
running sequences under `vllm`.

With `--share` a model is computed natively (the default one unless said otherwise), 32 sequences decode, and
planning is told as a share of the whole step, too. The target is 5 %.
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import sys
import time
from dataclasses import dataclass

from headway.clock import VirtualClock
from headway.core import FinishReason, Request, SamplingParams, Sequence
from headway.errors import HeadwayError
from headway.executor.base import Executor
from headway.executor.registry import ExecutorOptions, PoolSize, make_loader
from headway.executor.simulated import SimulatedExecutor
from headway.kv import KVCache, make_prefix_cache
from headway.models import open_model
from headway.sched import POLICIES, Scheduler, make_policy

BLOCK = 16
PROMPT = 512
FIRST_STEPS = 400
"""Steps in which all prompts must have been computed."""

MOST = 4096
"""Sequences, and steps: more of both than fit into memory would be no measurement."""

SHARED_RUNNING, SHARED_PROMPT = 32, 64
"""Sequences, and tokens of their prompts, where a model is computed."""


@dataclass(frozen=True, slots=True)
class Step:
    """Seconds of planning, computing and booking; `num_decodes` lanes of one token."""

    planned_s: float = 0.0
    computed_s: float = 0.0
    committed_s: float = 0.0
    num_decodes: int = 0

    @property
    def own_s(self) -> float:
        """What is not the executor's."""
        return self.planned_s + self.committed_s


def measure(policy: str, num_running: int, num_steps: int) -> dict[str, object]:
    """Times of steps in which `num_running` sequences decode, the executor a simulated one."""
    num_blocks = _num_blocks(num_running, PROMPT, num_steps)
    clock = VirtualClock()
    executor = SimulatedExecutor(num_blocks, BLOCK, clock, lambda _: 0.02, {})
    steps = _run(_filled(policy, num_running, PROMPT, num_steps), executor, clock, (num_running, num_steps))
    return {"policy": policy, "running": num_running, "steps": len(steps), **_times(steps)}


def measure_share(policy: str, num_steps: int, model: str | None) -> dict[str, object]:
    """The same beside the native executor's own time, for `SHARED_RUNNING` sequences."""
    num_blocks = _num_blocks(SHARED_RUNNING, SHARED_PROMPT, num_steps)
    executor = make_loader("native", ExecutorOptions()).load(
        open_model(model).file, PoolSize(num_blocks=num_blocks, block_size=BLOCK)
    )
    try:
        scheduler = _filled(policy, SHARED_RUNNING, SHARED_PROMPT, num_steps)
        steps = _run(scheduler, executor, VirtualClock(), (SHARED_RUNNING, num_steps))
    finally:
        executor.close()
    times = _times(steps)
    computed_ms = 1e3 * statistics.median(step.computed_s for step in steps)
    share = statistics.median(step.own_s / (step.own_s + step.computed_s) for step in steps)
    return {
        "policy": policy,
        "running": SHARED_RUNNING,
        "steps": len(steps),
        **times,
        "native_ms": computed_ms,
        "share": share,
    }


def _num_blocks(num_running: int, num_prompt: int, num_steps: int) -> int:
    return num_running * (num_prompt + FIRST_STEPS + num_steps + 64) // BLOCK


def _filled(policy: str, num_running: int, num_prompt: int, num_steps: int) -> Scheduler:
    """A scheduler in which all requests wait; every token id is a small one, so that any model knows it."""
    num_blocks = _num_blocks(num_running, num_prompt, num_steps)
    limits = {"max_num_seqs": num_running, "max_batch_size": num_running, "num_slots": num_blocks * BLOCK}
    kv = KVCache(num_blocks, BLOCK, make_prefix_cache("hashed", BLOCK), num_host_blocks=num_blocks)
    scheduler = Scheduler(make_policy(policy, {}, limits), kv, _never, name=policy)
    output = FIRST_STEPS + num_steps
    for number in range(num_running):
        prompt = tuple((number * num_prompt + at) * 7 % 20_011 for at in range(num_prompt))
        params = SamplingParams(temperature=0.0, max_tokens=output)
        scheduler.submit(Request(id=f"r{number}", prompt_ids=prompt, max_output=output, params=params), 0.0)
    scheduler.take_events()
    return scheduler


def _run(scheduler: Scheduler, executor: Executor, clock: VirtualClock, wanted: tuple[int, int]) -> list[Step]:
    """`wanted` (running, steps): so many steps in which so many sequences decode."""
    num_running, num_steps = wanted
    steps: list[Step] = []
    for _ in range(FIRST_STEPS + num_steps):
        step = _step(scheduler, executor, clock)
        if step.num_decodes == num_running:
            steps.append(step)
        if len(steps) == num_steps:
            return steps
    if not steps:
        raise HeadwayError(f"never ran {num_running} sequences at once")
    return steps


def _times(steps: list[Step]) -> dict[str, float]:
    return {
        "plan_ms": 1e3 * statistics.median(step.planned_s for step in steps),
        "commit_ms": 1e3 * statistics.median(step.committed_s for step in steps),
        "total_ms": 1e3 * statistics.median(step.own_s for step in steps),
        "least_ms": 1e3 * min(step.own_s for step in steps),
    }


def _step(scheduler: Scheduler, executor: Executor, clock: VirtualClock) -> Step:
    """One step; what the scheduler does is timed on this thread alone, what the executor does by the wall."""
    began = time.thread_time()
    batch = scheduler.schedule(clock.now())
    planned = time.thread_time()
    if batch is None:
        scheduler.close_step(clock.now())
        clock.advance(0.02)
        return Step()
    launched = time.perf_counter()
    result = executor.launch(batch).result()
    computed = time.perf_counter()
    clock.advance(result.elapsed_s)
    returned = time.thread_time()
    scheduler.commit(batch, result, clock.now())
    scheduler.close_step(clock.now())
    ended = time.thread_time()
    num_decodes = sum(len(lane.token_ids) == 1 for lane in batch.lanes)
    return Step(planned - began, computed - launched, ended - returned, num_decodes)


def _never(seq: Sequence) -> FinishReason | None:
    return FinishReason.LENGTH if seq.num_output >= seq.request.max_output else None


def main(args: list[str] | None = None) -> int:
    """Measure and print. The status is 2 where no policy could be measured, 130 after Ctrl-C."""
    try:
        return _measure(_parser().parse_args(args))
    except KeyboardInterrupt:
        print("planning: interrupted", file=sys.stderr)
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("policies", nargs="*", metavar="POLICY", help="default: all, with --share vllm and headway")
    parser.add_argument("--running", type=_count, default=256)
    parser.add_argument("--steps", type=_count, default=300)
    parser.add_argument("--share", action="store_true")
    parser.add_argument("--model", help="a file, a folder, or a name in the catalogue")
    parser.add_argument("--json", action="store_true")
    return parser


def _count(text: str) -> int:
    """A number from the line. Raises `ArgumentTypeError`, which is told in a line."""
    if not text.isdecimal() or not 1 <= int(text) <= MOST:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1 to {MOST}")
    return int(text)


def _measure(args: argparse.Namespace) -> int:
    rows: list[dict[str, object]] = []
    for policy in args.policies or (["vllm", "headway"] if args.share else sorted(POLICIES)):
        gc.collect()
        try:
            one = (
                measure_share(policy, args.steps, args.model)
                if args.share
                else measure(policy, args.running, args.steps)
            )
            rows.append(one)
        except HeadwayError as error:
            rows.append({"policy": policy, "error": str(error)})
    print(json.dumps(rows, indent=2) if args.json else _table(rows))
    return 2 if all("error" in row for row in rows) else 0


def _table(rows: list[dict[str, object]]) -> str:
    columns = ["running", "plan_ms", "commit_ms", "total_ms", "least_ms", "native_ms", "share"]
    columns = [name for name in columns if any(name in row for row in rows)]
    lines = [f"{'policy':<16}" + "".join(f"{name.replace('_', ' '):>11}" for name in columns)]
    for row in rows:
        if "error" in row:
            lines.append(f"{row['policy']:<16} {row['error']}")
        else:
            cells = [row[name] if name == "running" else f"{row[name]:.3f}" for name in columns]
            lines.append(f"{row['policy']:<16}" + "".join(f"{cell:>11}" for cell in cells))
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
