"""Headway's own numbers on this machine: `make bench`. A table, and benchmarks/results/latest.json.

    python -m benchmarks.own [--rounds 3] [--check]

The work is that of the comparison with peers (benchmarks/peers/work.py), over HTTP, with default settings; what the
processor could do at most is measured in the same run by `headway profile`. With `--check`, serving alone is run and
held against the file's figure, loosely: half of it fails, because a shared machine may well be a third slower today.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.peers.figures import Figures, figures
from benchmarks.peers.machine import machine
from benchmarks.peers.systems import MAIN, Host, headway
from benchmarks.peers.work import WORKS
from headway.executor.native_loader import physical_cores
from headway.report import Spread, over_repeats

LATEST = Path("benchmarks/results/latest.json")
SEED = 0
POOL_MB = 268.435456
"""256 MiB of KV cache, which the work at 32 at once fills: then resident memory can be held against its parts."""

FLAGS = {
    "interference": ("--itl-target-ms", "60"),
    "serving32": ("--kv-cache-memory", "256MiB"),
}
LOOSE = 0.5

Found = dict[str, list[Figures]]


def main() -> None:
    """Measure, print, write; or check."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--check", action="store_true", help="compare serving with the recorded figure, loosely")
    parser.add_argument("--output", type=Path, default=LATEST)
    args = parser.parse_args()
    if args.check:
        sys.exit(check(args.output))
    found = measure(list(WORKS), args.rounds)
    limit = profile()
    document = {
        "machine": {**machine(), **{name: limit["compute"][name] for name in ("weights", "kv_dtype")}},
        "seed": SEED,
        "rounds": args.rounds,
        "rows": list(rows(found, limit)),
        "runs": found,
        "profile": limit,
    }
    args.output.parent.mkdir(parents=True, exist_ok=True)
    args.output.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    for row in document["rows"]:
        verdict = {None: "", True: "reached", False: "missed"}[row["is_met"]]
        spread = f"{row['low']:.4g} to {row['high']:.4g}"
        print(f"{row['what']:<58}{row['value']:>10.4g} {row['unit']:<8}{spread:<22}{row['wanted']:<12}{verdict}")


def measure(works: list[str], num_rounds: int) -> Found:
    """Figures of every round of every piece of work, the pieces in turn."""
    host = Host.of(physical_cores())
    found: Found = {work: [] for work in works}
    for number in range(num_rounds):
        for work in works:
            seen = headway(*FLAGS.get(work, ())).measure(host, WORKS[work], f"{SEED} {number}")
            found[work].append(figures(work, seen))
    return found


def profile() -> dict[str, Any]:
    """`headway profile`: stages of a one-row step and of a prefill, and the limits measured beside them."""
    words = ["profile", "--decode", "1", "--context", "64", "--prefill", "512", "--json"]
    done = subprocess.run([sys.executable, "-c", MAIN, *words], stdout=subprocess.PIPE, check=True)  # noqa: S603 - ours
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def rows(found: Found, limit: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The table: what was measured, its spread, what is wanted and whether it is so."""
    for work in ("serving16", "serving32", "serving64", "stream"):
        yield _row(f"{work}: output", _values(found, work, "output_tok_s"), "tok/s")
    for work in ("prefill512", "prefill2048"):
        yield _row(f"{work}: prompt", _values(found, work, "prompt_tok_s"), "tok/s")
    growth = _pairs(found["serving64"], found["serving16"], "output_tok_s", "output_tok_s")
    yield _row("throughput at 64 ÷ at 16", growth, "", least=0.97)
    calm, both = found["interference"], found["interference"]
    yield _row("interference: P99 gap ÷ P50 gap", _pairs(both, both, "itl_p99_ms", "itl_p50_ms"), "", most=2.0)
    yield _row("interference: P50 gap ÷ undisturbed", _pairs(both, calm, "itl_p50_ms", "calm_itl_p50_ms"), "", most=1.5)
    outside = [100 * share for share in _values(found, "serving16", "outside_executor_share")]
    yield _row("outside the executor at 16 at once", outside, "% of wall", most=7.0)
    yield _row("start to ready", [one["start_s"] for runs in found.values() for one in runs], "s", most=3.0)
    weights_mb = limit["compute"]["weight_bytes"] / 1e6
    resident = [mb - weights_mb - POOL_MB for mb in _values(found, "serving32", "resident_mb")]
    yield _row("resident memory − weights − KV pool", resident, "MB", most=250.0)
    yield from _limits(limit)


def _limits(limit: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """How near the hardware's own limits the work of one row and of many comes."""
    decode, prefill = limit["profiles"]
    peaks = limit["yardsticks"]
    products = [stage for stage in prefill["stages"] if stage["products"] and stage["name"] in _MATRICES]
    speed = sum(stage["products"] for stage in products) / sum(stage["seconds"] for stage in products)
    yield _row("matrices of a 512-token prefill", [100 * speed / peaks["weight_products"]], "% of peak", least=60.0)
    share = 100 * _matrix_bytes(decode) / decode["seconds"] / peaks["read_bytes"]
    yield _row("one-row step: weights ÷ its time, of the read rate", [share], "%", least=70.0)


def _matrix_bytes(profile: dict[str, Any]) -> float:
    """Bytes of all matrices but the embedding: what a step of one row reads."""
    return sum(stage["num_bytes"] for stage in profile["stages"] if stage["name"] in _MATRICES)


_MATRICES = ("qkv", "output", "gate_up", "down", "head")


def _row(
    what: str, values: list[float], unit: str, *, least: float | None = None, most: float | None = None
) -> dict[str, Any]:
    spread = over_repeats(values)
    wanted = f"≥ {least:g}" if least is not None else f"≤ {most:g}" if most is not None else ""
    is_met = None if not wanted else spread.value >= least if least is not None else spread.value <= (most or 0.0)
    return {"what": what, "unit": unit, "wanted": wanted, "is_met": is_met, **_plain(spread)}


def _plain(spread: Spread) -> dict[str, float]:
    return {"value": spread.value, "low": spread.low, "high": spread.high, "size": spread.size}


def _values(found: Found, work: str, figure: str) -> list[float]:
    return [one[figure] for one in found[work]]


def _pairs(over: list[Figures], under: list[Figures], top: str, bottom: str) -> list[float]:
    return [one[top] / other[bottom] for one, other in zip(over, under, strict=True)]


def check(path: Path) -> int:
    """1 where serving is less than half of what the file says on a machine of the same kind, else 0."""
    if not path.exists():
        print(f"{path} is not there: run `make bench` first")
        return 1
    recorded = json.loads(path.read_text(encoding="utf-8"))
    cpu = machine()["cpu"]
    if cpu != recorded["machine"]["cpu"]:
        print(f"recorded on {recorded['machine']['cpu']}, this is {cpu}: nothing to compare")
        return 0
    now = over_repeats(_values(measure(["serving16"], 3), "serving16", "output_tok_s")).high
    then = over_repeats(_values(recorded["runs"], "serving16", "output_tok_s")).value
    print(f"serving, 16 at once: {now:.0f} tok/s (best of 3), recorded {then:.0f}; fails below {LOOSE * then:.0f}")
    return 0 if now >= LOOSE * then else 1


if __name__ == "__main__":
    main()
