"""`headway fidelity engine`: this machine's engine, live and simulated, side by side."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headway.cli import bench_options as options
from headway.cli import calibrating, calibrations, flags
from headway.cli.output import print_json, results

if TYPE_CHECKING:
    from headway.fidelity import EngineTrial

FAILED, INTERRUPTED = 1, 130
_LOAD = "Workload"

CalibrationFile = Annotated[
    Path | None,
    typer.Option(
        "--calibration",
        metavar="FILE",
        help="What `headway calibrate` wrote of this engine.",
        show_default="calibrate first",
    ),
]
CalibrateSeconds = Annotated[float, typer.Option(min=1.0, max=600.0, help="How long to calibrate.")]
Policies = Annotated[str, typer.Option(metavar="A,B,...", help="Which policies.")]
NumRequests = Annotated[int, typer.Option(min=5, help="Requests of a run.", rich_help_panel=_LOAD)]
Repeats = Annotated[int, typer.Option(min=1, max=100, help="Runs of each policy; the median counts.")]
Load = Annotated[
    float,
    typer.Option(help="Arrival rate as a share of what the policy sustains, at most 0.85.", rich_help_panel=_LOAD),
]
Median = Annotated[float, typer.Option(rich_help_panel=_LOAD)]
WorkloadSeed = Annotated[int, typer.Option("--seed", help="Seed of the workload.", rich_help_panel=_LOAD)]
LatencyBound = Annotated[float, typer.Option(min=0.0, help="Largest relative error of TTFT and ITL.")]
ThroughputBound = Annotated[float, typer.Option(min=0.0, help="Largest relative error of throughput.")]


def engine(
    *,
    model: options.LocalModel = None,
    calibration: CalibrationFile = None,
    calibrate_seconds: CalibrateSeconds = 75.0,
    policies: Policies = "vllm,sarathi_serve,headway",
    num_requests: NumRequests = 200,
    repeats: Repeats = 3,
    load: Load = 0.4,
    prompt_median: Median = 64,
    prompt_p90: Median = 160,
    output_median: Median = 60,
    output_p90: Median = 200,
    seed: WorkloadSeed = 0,
    latency_bound: LatencyBound = 0.15,
    throughput_bound: ThroughputBound = 0.05,
    executor: options.ExecutorName = None,
    weights: flags.Weights = None,
    kv_dtype: flags.KvDtype = None,
    threads: flags.Threads = None,
    max_num_seqs: flags.MaxNumSeqs = 256,
    max_num_batched_tokens: flags.MaxNumBatchedTokens = 512,
    max_model_len: flags.MaxModelLen = None,
    num_blocks: flags.NumBlocks = None,
    prefix_cache: flags.PrefixCache = "hashed",
    as_json: flags.Json = False,
) -> int:
    """Run the same requests on this machine's engine and in virtual time, and compare."""
    given: dict[str, Any] = locals()
    return _run(given)


def _run(given: dict[str, Any]) -> int:
    from headway.cli.bench_screen import Screen
    from headway.cli.fidelity_text import engine_json, engine_text
    from headway.fidelity import check_engine

    trial = _trial(given)
    known = calibrations.read(given["calibration"]) if given["calibration"] is not None else None
    built = options.build_local({name: value for name, value in given.items() if name != "seed"})
    try:
        known = known or calibrating.measure(built, given["calibrate_seconds"])[0]
        calibrations.check_same(known, built)
        with Screen() as screen:
            check = check_engine(built, known, trial, on_progress=screen.show)
    finally:
        built.core.executor.close()
    print_json(engine_json(check, known)) if given["as_json"] else results().print(
        engine_text(check), markup=False, soft_wrap=True
    )
    if not check.is_complete:
        return INTERRUPTED
    return 0 if check.is_within else FAILED


def _trial(given: dict[str, Any]) -> EngineTrial:
    from headway.bench.mixed import MixedLoad
    from headway.fidelity import EngineTrial
    from headway.sched import policy_class

    policies = list(dict.fromkeys(name.strip() for name in given["policies"].split(",")))
    for name in policies:
        policy_class(name)
    names = ("num_requests", "prompt_median", "prompt_p90", "output_median", "output_p90", "seed")
    trial = EngineTrial(
        requests=MixedLoad(**{name: given[name] for name in names}, context=given["max_model_len"] or 2048),
        policies=policies,
        **{name: given[name] for name in ("repeats", "load", "latency_bound", "throughput_bound")},
    )
    trial.requests.workload(1.0, 0)  # a law that cannot be is refused now, not after the first run
    return trial
