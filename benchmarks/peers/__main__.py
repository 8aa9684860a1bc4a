"""Headway beside other systems, the same work in alternation: `make bench-peers`.

    python -m benchmarks.peers run [--only serving16 stream] [--systems headway "llama.cpp Q8_0"] [--rounds 5]
    python -m benchmarks.peers page

`run` appends to the results file, so a comparison may be made in parts; `page` writes docs/benchmarks.md of it.
"""

from __future__ import annotations

import argparse
import secrets
import time
from pathlib import Path

from benchmarks.peers import page, results
from benchmarks.peers.figures import figures
from benchmarks.peers.systems import SYSTEMS, Host
from benchmarks.peers.work import WORKS
from headway.executor.native_loader import physical_cores

RESULTS = Path("benchmarks/results/peers.jsonl")
TAKING_PART = {
    "serving": ("headway", "llama.cpp Q8_0", "llama.cpp Q4_0", "openvino"),
    "stream": ("headway", "llama.cpp Q8_0", "llama.cpp Q4_0", "openvino"),
    "prefill": ("headway", "llama.cpp Q8_0", "llama.cpp Q4_0", "openvino"),
    "interference": (
        "headway itl 60",
        "llama.cpp Q8_0",
        "headway itl 150",
        "openvino 64",
        "headway itl 300",
        "openvino",
    ),
}


def main() -> None:
    """Run what the words on the line say."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    runs = commands.add_parser("run", help="measure, and append to the results")
    runs.add_argument("--only", nargs="+", choices=WORKS, default=list(WORKS))
    runs.add_argument("--systems", nargs="+", choices=SYSTEMS, default=list(SYSTEMS))
    runs.add_argument("--rounds", type=int, default=5, help="alternations")
    runs.add_argument("--results", type=Path, default=RESULTS)
    pages = commands.add_parser("page", help="write docs/benchmarks.md")
    pages.add_argument("--results", type=Path, default=RESULTS)
    args = parser.parse_args()
    if args.command == "run":
        run(args.only, args.systems, args.rounds, args.results)
    else:
        page.write(results.Results(results.read(args.results)), Path("docs"))


def run(works: list[str], systems: list[str], num_rounds: int, path: Path) -> None:
    """Measure each system once a round, one after the other, so that a slow phase of the machine meets all of them."""
    host = Host.of(physical_cores())
    for _ in range(num_rounds):
        for work in works:
            round_id = f"{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(2)}"
            for name in TAKING_PART[work.rstrip("0123456789")]:
                if name not in systems:
                    continue
                found = figures(work, SYSTEMS[name].measure(host, WORKS[work], f"{round_id} {name}"))
                results.add(path, results.Run(work=work, system=name, round=round_id, figures=found))
                print(
                    f"{work:<13}{name:<16}" + "  ".join(f"{key} {value:.4g}" for key, value in found.items()),
                    flush=True,
                )


if __name__ == "__main__":
    main()
