"""How long the scheduler itself takes: plan and commit of one step, by policy, in milliseconds.

    python benchmarks/planning.py [POLICY ...] [--running 256] [--steps 300] [--json]

All sequences are decoding; what the executor does is not counted. The target is 1.5 ms at the median for 256
running sequences under `vllm`.
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import time

from headway.clock import VirtualClock
from headway.core import FinishReason, Request, SamplingParams, Sequence
from headway.errors import HeadwayError
from headway.executor.simulated import SimulatedExecutor
from headway.kv import KVCache, make_prefix_cache
from headway.sched import POLICIES, Scheduler, make_policy

BLOCK = 16
PROMPT = 512
FIRST_STEPS = 400
"""Steps in which all prompts must have been computed."""


def measure(policy: str, num_running: int, num_steps: int) -> dict[str, object]:
    """Times of steps in which `num_running` sequences decode."""
    num_blocks = num_running * (PROMPT + FIRST_STEPS + num_steps + 64) // BLOCK
    limits = {"max_num_seqs": num_running, "max_batch_size": num_running, "num_slots": num_blocks * BLOCK}
    kv = KVCache(num_blocks, BLOCK, make_prefix_cache("hashed", BLOCK), num_host_blocks=num_blocks)
    scheduler = Scheduler(make_policy(policy, {}, limits), kv, _never, name=policy)
    clock = VirtualClock()
    executor = SimulatedExecutor(num_blocks, BLOCK, clock, lambda _: 0.02, {})
    output = FIRST_STEPS + num_steps
    for number in range(num_running):
        prompt = tuple(range(number * PROMPT, (number + 1) * PROMPT))
        params = SamplingParams(temperature=0.0, max_tokens=output)
        scheduler.submit(Request(id=f"r{number}", prompt_ids=prompt, max_output=output, params=params), 0.0)
    scheduler.take_events()
    times: list[tuple[float, float]] = []
    for _ in range(FIRST_STEPS + num_steps):
        planned_s, committed_s, num_decodes = _step(scheduler, executor, clock)
        if num_decodes == num_running:
            times.append((planned_s, committed_s))
        if len(times) == num_steps:
            break
    if not times:
        raise HeadwayError(f"{policy} never ran {num_running} sequences at once")
    return {
        "policy": policy,
        "running": num_running,
        "steps": len(times),
        "plan_ms": 1e3 * statistics.median(plan for plan, _ in times),
        "commit_ms": 1e3 * statistics.median(commit for _, commit in times),
        "total_ms": 1e3 * statistics.median(plan + commit for plan, commit in times),
        "least_ms": 1e3 * min(plan + commit for plan, commit in times),
    }


def _step(scheduler: Scheduler, executor: SimulatedExecutor, clock: VirtualClock) -> tuple[float, float, int]:
    """Seconds of planning, seconds of booking, and lanes of one token."""
    began = time.thread_time()
    batch = scheduler.schedule(clock.now())
    planned = time.thread_time()
    if batch is None:
        scheduler.close_step(clock.now())
        clock.advance(0.02)
        return 0.0, 0.0, 0
    result = executor.launch(batch).result()
    launched = time.thread_time()
    scheduler.commit(batch, result, clock.now())
    scheduler.close_step(clock.now())
    ended = time.thread_time()
    return planned - began, ended - launched, sum(len(lane.token_ids) == 1 for lane in batch.lanes)


def _never(seq: Sequence) -> FinishReason | None:
    return FinishReason.LENGTH if seq.num_output >= seq.request.max_output else None


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("policies", nargs="*", metavar="POLICY", help="default: all")
    parser.add_argument("--running", type=int, default=256)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    rows = []
    for policy in args.policies or sorted(POLICIES):
        gc.collect()
        try:
            rows.append(measure(policy, args.running, args.steps))
        except HeadwayError as error:
            rows.append({"policy": policy, "error": str(error)})
    if args.json:
        print(json.dumps(rows, indent=2))
        return
    print(f"{'policy':<16} {'running':>8} {'plan ms':>8} {'commit ms':>10} {'total ms':>9} {'least ms':>9}")
    for row in rows:
        if "error" in row:
            print(f"{row['policy']:<16} {row['error']}")
        else:
            cells = [f"{row[key]:.3f}" for key in ("plan_ms", "commit_ms", "total_ms", "least_ms")]
            print(f"{row['policy']:<16} {row['running']:>8} {cells[0]:>8} {cells[1]:>10} {cells[2]:>9} {cells[3]:>9}")


if __name__ == "__main__":
    main()
