"""The comparison of `headway bench policies` in virtual time: many seeds, in minutes, on a steady machine.

The same workload, scheduler and policies; only the executor is pretended. Its step times are those of a calibration
(`headway calibrate`), with `--scatter 0.1` times a factor drawn for each step, log-normal with that standard deviation.

    python benchmarks/policies_virtual.py --seeds 0,1,2 --rates 1.2,0.8 [--policies a,b] [--calibration FILE]
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from headway.bench.mixed import MixedLoad
from headway.bench.score import Score, middle, score, spread, sustained_rate
from headway.bench.verdict import claims
from headway.core import Batch
from headway.errors import BadSetting, HeadwayError
from headway.report import Grid, RunRecord
from headway.sched import POLICIES, make_policy
from headway.sim import Pool, simulate
from headway.sim.fitted import Fitted, read_fitted
from headway.sim.plant import Plan, Plant

CONTEXT = 2048
LIMITS = {"max_num_seqs": 256, "max_num_batched_tokens": 2048}
NUM_BLOCKS = 5825
"""2 GiB of KV of the default model."""

TWO_CORES = Path(__file__).parent / "calibrations" / "two_cores.json"
"""What `headway calibrate` wrote on two virtual cores with AVX2, where the logs in `results` come from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Restless(Plant):
    """One whose steps take what is expected times a factor, log-normal with a standard deviation of `scatter`."""

    scatter: float
    chance: random.Random

    def step_times(self, batch: Batch, moment_s: float) -> tuple[float, float]:
        """As they are, times a factor of their own."""
        factor = self.chance.lognormvariate(0.0, self.scatter)
        seconds, between_s = Plant.step_times(self, batch, moment_s)
        return factor * seconds, factor * between_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """What the policies run on; each run meets the same chance."""

    cost: Fitted
    num_blocks: int = NUM_BLOCKS
    scatter: float = 0.0

    def run(self, policy: str, rate: float, load: MixedLoad, settings: Mapping[str, str]) -> RunRecord:
        """One run of one policy. A `rate` of infinity sends everything at once."""
        plant = Restless(
            cost=self.cost,
            num_blocks=self.num_blocks,
            num_host_blocks=0,
            context=CONTEXT,
            scatter=self.scatter,
            chance=random.Random(load.seed),
        )
        plan = Plan(policy=policy, settings=settings, defaults=LIMITS)
        return simulate(load.workload(rate, 0).items(), Pool(plant=plant, plan=plan))


def table(scores: Mapping[str, list[Score]], factor: float) -> str:
    """The middles over the seeds, by throughput, and the least and greatest of what the claims are about."""
    middles = {policy: middle(runs) for policy, runs in scores.items()}
    rows = sorted(middles.items(), key=lambda entry: -entry[1].output_throughput)
    lines = Grid(
        title=f"{factor:g} x what vllm sustains, median of {max(map(len, scores.values()))} seeds, times in ms",
        columns=["policy", "tok/s", "TTFT P50", "TTFT P95", "from", "to", "ITL P50", "ITL P99", "from", "to", "failed"],
        rows=[
            [
                policy,
                one.output_throughput,
                one.ttft_p50_ms,
                *_with_range(scores[policy], "ttft_p95_ms"),
                one.itl_p50_ms,
                *_with_range(scores[policy], "itl_p99_ms"),
                one.num_failed,
            ]
            for policy, one in rows
        ],
    ).to_text()
    verdicts = [f"  {'yes' if claim.holds else 'no '}  {claim.text}" for claim in claims(middles)]
    return "\n".join([lines, *verdicts])


def main(args: Sequence[str] | None = None) -> int:
    """Run it, and return the exit status: 2 for what cannot be run, 130 after Ctrl-C, with a line that says so."""
    try:
        compare(_given(args))
    except HeadwayError as error:
        print(f"policies_virtual: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("policies_virtual: interrupted", file=sys.stderr)
        return 130
    return 0


def _rates(text: str) -> list[float]:
    rates = [float(part) for part in text.split(",")]
    if not all(rate > 0.0 for rate in rates):
        raise argparse.ArgumentTypeError(f"invalid rates {text!r}; each must be above 0, as 1.2,0.8")
    return rates


def _seeds(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]


def _share(text: str) -> float:
    if not 0.0 <= (share := float(text)) <= 1.0:
        raise argparse.ArgumentTypeError(f"invalid deviation {text!r}; it must be between 0 and 1")
    return share


def _file(text: str) -> Path:
    if not (path := Path(text)).parent.is_dir() or path.is_dir():
        raise argparse.ArgumentTypeError(f"invalid file {text!r}; it must be one in a folder that exists")
    return path


def _setting(text: str) -> tuple[str, str, str]:
    where, value = text.split("=", 1)
    policy, key = where.rsplit(".", 1)
    return policy, key, value


def _given(args: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--policies", default=",".join(sorted(POLICIES)))
    parser.add_argument("--rates", type=_rates, default="1.2,0.8")
    parser.add_argument("--seeds", type=_seeds, default="0,1,2")
    parser.add_argument("--num-requests", type=int, default=200)
    parser.add_argument("--num-blocks", type=int, default=NUM_BLOCKS, help="blocks of the KV cache, of 16 tokens")
    parser.add_argument("--calibration", type=Path, default=TWO_CORES)
    parser.add_argument("--scatter", type=_share, default=0.0, help="standard deviation of ln(step time ÷ expected)")
    parser.add_argument("--set", type=_setting, action="append", default=[], metavar="POLICY.KEY=VALUE")
    parser.add_argument("--json", type=_file, help="write every run's figures to this file")
    return parser.parse_args(args)


def compare(given: argparse.Namespace) -> None:
    """All runs that were asked for; a table for each rate. Raises `BadSetting`."""
    policies = given.policies.split(",")
    machine = Machine(cost=read_fitted(given.calibration), num_blocks=given.num_blocks, scatter=given.scatter)
    settings: dict[str, dict[str, str]] = {policy: {} for policy in policies}
    for policy, key, value in given.set:
        if policy not in settings:
            raise BadSetting(f"--set {policy}.{key}: it is not run; name one of {', '.join(policies)}")
        settings[policy][key] = value
    for policy in policies:
        make_policy(policy, settings[policy], LIMITS)
    loads = [MixedLoad(num_requests=given.num_requests, context=CONTEXT, seed=seed) for seed in given.seeds]
    bases = []
    for load in loads:
        record = machine.run("vllm", float("inf"), load, {})
        if not record.steps:
            raise BadSetting(f"with --num-blocks {given.num_blocks} nobody is answered; it must hold a request")
        bases.append(sustained_rate(len(record.requests), record.steps))
    print("vllm sustains", ", ".join(f"{base:.3g}" for base in bases), "requests/s", flush=True)
    everything = {}
    for factor in given.rates:
        scores: dict[str, list[Score]] = {}
        for policy in policies:
            scores[policy] = [
                score(machine.run(policy, base * factor, load, settings[policy]))
                for load, base in zip(loads, bases, strict=True)
            ]
            one = middle(scores[policy])
            print(f"  {policy}: {one.output_throughput:.1f} tok/s, TTFT P95 {one.ttft_p95_ms:.0f} ms", flush=True)
        everything[factor] = {policy: [asdict(one) for one in runs] for policy, runs in scores.items()}
        print(table(scores, factor), flush=True)
    if given.json is not None:
        _write(given.json, json.dumps(everything, indent=1) + "\n")


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise BadSetting(f"cannot write {path}: {error.strerror}") from error


def _with_range(runs: list[Score], name: str) -> tuple[float, float, float]:
    return getattr(middle(runs), name), *spread(runs, name)


if __name__ == "__main__":
    sys.exit(main())
