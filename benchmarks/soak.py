"""Soak: many streams at once for a while, then everything must be as it was before.

    python benchmarks/soak.py                      # 500 streams for 10 minutes on a server of its own
    python benchmarks/soak.py --short              # what CI runs: 40 streams for 15 seconds

A fifth of the requests is cancelled, some clients read slowly, all pause and come back together, prompts differ in
length. Afterwards: no request inside, no block in use, no token open in the ledger and its sum right, as many ends as
requests, no 5xx but refusals, memory flat. Somebody watches `/ui` all the while, which must cost next to nothing.
Prints one line per check; the exit status is 0 when all hold.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import sys
import time
from collections import Counter
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path

import httpx
from prometheus_client.parser import text_string_to_metric_families

from headway.bench import Broken, Call, Chunk, Closing, HttpSettings, HttpTarget, Refused
from headway.cli.bench_options import default_executor
from headway.cli.own_server import OwnServer, own_server
from headway.clock import WallClock

CANCELLED, SLOW = 0.2, 0.1
MOST_WATCHING = 0.01
MOST_GROWTH, SPARE_BYTES = 1.15, 64 << 20
LENGTHS = (4, 16, 60, 200)


@dataclass
class Soak:
    """The clients' side of a run."""

    target: HttpTarget
    end_s: float
    longest: int
    seed: int
    burst_every_s: float
    burst_pause_s: float
    outcomes: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)

    async def client(self, number: int) -> None:
        """One client after another in the same place, until the time is over."""
        chance = random.Random(f"{self.seed} {number}")
        turn = 0
        while (now_s := time.monotonic()) < self.end_s:
            if now_s % self.burst_every_s < self.burst_pause_s:  # all pause, and all come back at once
                await asyncio.sleep(self.burst_pause_s - now_s % self.burst_every_s)
            turn += 1
            try:
                self.outcomes[await self._ask(chance, f"{number}-{turn}")] += 1
            except Refused as error:
                self.outcomes["refused"] += 1
                if error.retry_after_s is None:
                    self.faults.append(f"a refusal without Retry-After: {error}")
                await asyncio.sleep(min(error.retry_after_s or 1.0, 5.0) * chance.uniform(0.5, 1.5))
            except Broken as error:
                self.outcomes["broken"] += 1
                self.faults.append(str(error))

    async def _ask(self, chance: random.Random, name: str) -> str:
        num_prompt = min(chance.choice(LENGTHS), self.longest // 2)
        prompt = [chance.randrange(5, 200) for _ in range(num_prompt)]
        call = Call(
            id=name, prompt=prompt, num_prompt=num_prompt, num_output=chance.randint(1, min(48, self.longest // 2))
        )
        leaves_at = chance.randint(0, 8) if chance.random() < CANCELLED else None
        pause_s = chance.uniform(0.05, 0.3) if chance.random() < SLOW else 0.0
        num_chunks = 0
        async with aclosing(self.target.stream(call)) as pieces:
            async for piece in pieces:
                if leaves_at is not None and num_chunks >= leaves_at:
                    return "cancelled"
                if isinstance(piece, Closing):
                    return "whole"
                num_chunks += isinstance(piece, Chunk)
                if pause_s:
                    await asyncio.sleep(pause_s)
        return "broken"


def figures(page: str) -> dict[str, float]:
    """Every metric's samples together, by name without prefix."""
    sums: dict[str, float] = {}
    for family in text_string_to_metric_families(page):
        for sample in family.samples:
            name = sample.name.removeprefix("headway:")
            for key in (name, *(f"{name}.{value}" for value in sample.labels.values())):
                sums[key] = sums.get(key, 0.0) + sample.value
    return sums


def resident_bytes(pid: int) -> int:
    """Memory of a process that is in RAM."""
    return int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1]) * 4096


def cpu_seconds(pid: int) -> float:
    """Processor time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def watch(url: str) -> None:
    """Read what the live page is told, as an open page does."""
    async with httpx.AsyncClient(base_url=url, timeout=60) as http, http.stream("GET", "/ui/feed") as answer:
        async for _ in answer.aiter_bytes():
            pass


async def soak(server: OwnServer, options: argparse.Namespace) -> list[tuple[str, bool]]:
    """Run the load; what was checked afterwards, and whether it holds."""
    patience_s = options.duration + 300.0  # where 500 wait, nothing comes for minutes
    target = HttpTarget(HttpSettings(url=server.url, fixed_length=True, request_timeout_s=patience_s), WallClock())
    await target.check()
    began_s = time.monotonic()
    bursts = (options.burst_every, options.burst_pause)
    run = Soak(target, began_s + options.duration, options.longest, options.seed, *bursts)
    watching = asyncio.create_task(watch(server.url))
    clients = [asyncio.create_task(run.client(number)) for number in range(options.streams)]
    await asyncio.sleep(options.duration / 3)
    early = resident_bytes(server.pid)
    await asyncio.gather(*clients)
    watching.cancel()
    server_s = cpu_seconds(server.pid)
    late = resident_bytes(server.pid)
    await target.close()
    async with httpx.AsyncClient(base_url=server.url, timeout=60) as http:
        for _ in range(600):
            if not (await http.get("/load")).json()["server_load"]:
                break
            await asyncio.sleep(0.1)
        now = figures((await http.get("/metrics")).text)
    outcomes = run.outcomes
    complete = now["request_success_total.stop"] + now["request_success_total.length"]
    ended = now["request_success_total"] + now["requests_rejected_total"]
    inside = sum(now[f"num_requests_{state}"] for state in ("running", "waiting", "swapped", "preempted"))
    for fault in run.faults[:5]:
        print("  fault:", fault)
    share = now["live_view_cpu_seconds_total"] / server_s if server_s else 0.0
    print(f"  the live page took {share:.2%} of the server's {server_s:.1f} processor seconds")
    print(f"  {dict(outcomes)}; server memory {early >> 20} MiB after a third, {late >> 20} MiB at the end")
    return [
        ("something was done", outcomes["whole"] > 0 and outcomes["cancelled"] > 0),
        ("no answer broke, no 5xx but refusals with Retry-After", not run.faults),
        ("nobody is inside", inside == 0),
        ("no KV block is in use", now["kv_blocks.used"] == 0),
        ("no token is open, and the ledger adds up", now["token_ledger_open"] == 0 == now["token_ledger_error"]),
        ("every whole answer ended once", outcomes["whole"] <= complete <= outcomes["whole"] + outcomes["cancelled"]),
        ("as many ends as requests that came in", ended <= sum(outcomes.values()) and ended >= outcomes["whole"]),
        ("no step failed", now["request_success_total.error"] == 0),
        ("the live page takes less than 1 % of the server's time", share < MOST_WATCHING or server.pid == os.getpid()),
        ("memory is flat", late <= early * MOST_GROWTH + SPARE_BYTES),
    ]


def main() -> int:
    """Start a server, soak it, report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--streams", type=int, default=500)
    parser.add_argument("--duration", type=float, default=600.0, help="seconds")
    parser.add_argument("--short", action="store_true", help="40 streams for 15 seconds")
    parser.add_argument("--model", default=None)
    parser.add_argument("--executor", default=default_executor())
    parser.add_argument("--longest", type=int, default=256, help="most tokens of a request")
    parser.add_argument("--kv-cache-memory", default="256MiB", help="of the server's KV cache")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--burst-every", type=float, default=20.0, help="seconds from one pause of all to the next")
    parser.add_argument("--burst-pause", type=float, default=2.0, help="seconds that all pause")
    options = parser.parse_args()
    if options.short:
        options.streams, options.duration = 40, 15.0
    # A cache that the load fills soon: what of it was never touched is not resident, and would look like growth later.
    words = [*([options.model] if options.model else []), "--executor", options.executor]
    words += ["--kv-cache-memory", options.kv_cache_memory]
    with own_server(words) as server:
        checks = asyncio.run(soak(server, options))
    for what, holds in checks:
        print("ok  " if holds else "FAIL", what)
    return 0 if all(holds for _, holds in checks) else 1


if __name__ == "__main__":
    sys.exit(main())
