"""`headway bench policies`: every scheduler on one engine under one workload."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headway.cli import bench_options as options
from headway.cli import flags
from headway.cli.output import print_json
from headway.errors import BadSetting

if TYPE_CHECKING:
    from headway.bench.policies import Contest, Standings
    from headway.bench.score import Score
    from headway.engine import Engine
    from headway.report import Grid

_LOAD = "Workload"

NumRequests = Annotated[int, typer.Option(help="Requests of a run.", min=1, rich_help_panel=_LOAD)]
Repeats = Annotated[int, typer.Option(help="Rounds; the median counts.", min=1, max=1000)]
Rates = Annotated[
    str,
    typer.Option(
        metavar="X,Y,...", help="Arrival rates as multiples of what vllm sustains here.", rich_help_panel=_LOAD
    ),
]
BaseRate = Annotated[
    float | None,
    typer.Option(help="Requests per second that count as 1.", show_default="measured first", rich_help_panel=_LOAD),
]
Timeout = Annotated[float, typer.Option("--timeout", help="Seconds after which a request counts as failed.", min=1.0)]
WorkloadSeed = Annotated[int, typer.Option("--seed", help="Seed of the workload.", rich_help_panel=_LOAD)]


def policies(
    *,
    model: options.LocalModel = None,
    only: Annotated[
        str | None, typer.Option("--policies", metavar="A,B,...", help="Which policies.", show_default="all")
    ] = None,
    num_requests: NumRequests = 200,
    repeats: Repeats = 5,
    rates: Rates = "1.2,0.8",
    base_rate: BaseRate = None,
    seed: WorkloadSeed = 0,
    prompt_median: Annotated[float, typer.Option(rich_help_panel=_LOAD)] = 180,
    prompt_p90: Annotated[float, typer.Option(rich_help_panel=_LOAD)] = 900,
    output_median: Annotated[float, typer.Option(rich_help_panel=_LOAD)] = 60,
    output_p90: Annotated[float, typer.Option(rich_help_panel=_LOAD)] = 200,
    timeout_s: Timeout = 600.0,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="POLICY.KEY=VALUE", help="A parameter of one policy; repeatable.", show_default=False
        ),
    ] = None,
    executor: options.ExecutorName = None,
    threads: flags.Threads = None,
    max_num_seqs: flags.MaxNumSeqs = 256,
    max_num_batched_tokens: flags.MaxNumBatchedTokens = 512,
    max_model_len: flags.MaxModelLen = None,
    num_blocks: flags.NumBlocks = None,
    kv_cache_memory: flags.KvCacheMemory = None,
    host_memory: flags.HostMemory = None,
    prefix_cache: flags.PrefixCache = "hashed",
    as_json: flags.Json = False,
) -> int:
    """Run one mixed workload under all scheduling policies and compare what users would feel."""
    given: dict[str, Any] = locals()
    return _run(given)


def _run(given: dict[str, Any]) -> int:
    from headway.bench.policies import Arena
    from headway.cli.bench_screen import Screen
    from headway.cli.output import notices, results

    names = _names(given["only"])
    engine = options.build_local({name: value for name, value in given.items() if name != "seed"})
    contest = _contest(given, names, engine)
    try:
        with Screen() as screen:
            arena = Arena(
                engine,
                contest,
                on_progress=lambda heat, progress: screen.show(_heading(heat), progress),
                on_record=lambda heat, _, score: screen.log(_line(heat, score)),
            )
            standings = asyncio.run(arena.run())
    finally:
        engine.core.executor.close()
    if given["as_json"]:
        print_json(document(contest, standings, engine))
    else:
        for factor in contest.factors:
            if standings.middles(factor):
                results().print(grid(standings, factor).to_text(), markup=False, soft_wrap=True)
                for claim in verdict(standings, factor):
                    results().print(f"  {'yes' if claim['holds'] else 'no '}  {claim['text']}", markup=False)
    for policy, reason in standings.skipped.items():
        notices().print(f"{policy} was left out: {reason}", markup=False)
    if not standings.is_complete:
        notices().print("interrupted: what is here was measured until then")
        return 130
    return 0


def _names(only: str | None) -> list[str]:
    from headway.sched import POLICIES, policy_class

    if not only:
        return sorted(POLICIES)
    names = [name.strip() for name in only.split(",")]
    for name in names:
        policy_class(name)
    return list(dict.fromkeys(names))


def _contest(given: Mapping[str, Any], names: list[str], engine: Engine) -> Contest:
    from headway.bench.mixed import MixedLoad
    from headway.bench.policies import Contest

    load = MixedLoad(
        num_requests=given["num_requests"],
        prompt_median=given["prompt_median"],
        prompt_p90=given["prompt_p90"],
        output_median=given["output_median"],
        output_p90=given["output_p90"],
        context=engine.limits.max_model_len,
        seed=given["seed"],
    )
    load.workload(1.0, 0)  # a law that cannot be is refused now, not after the first run
    return Contest(
        policies=names,
        load=load,
        factors=_numbers("--rates", given["rates"]),
        repeats=given["repeats"],
        base_rate=given["base_rate"],
        timeout_s=given["timeout_s"],
        settings=_settings(given["settings"] or (), names),
    )


def _numbers(flag: str, text: str) -> list[float]:
    try:
        numbers = [float(part) for part in text.split(",")]
    except ValueError:
        numbers = []
    if not numbers or not all(0 < number < 1e3 for number in numbers):
        raise BadSetting(f"{flag} is {text!r}; it must be numbers above 0 and below 1000 with commas between them")
    return numbers


def _settings(texts: list[str] | tuple[str, ...], policies: list[str]) -> dict[str, dict[str, str]]:
    from headway.cli.values import parse_settings

    chosen: dict[str, dict[str, str]] = {}
    for key, value in parse_settings(texts).items():
        policy, dot, name = key.rpartition(".")
        if not dot or policy not in policies:
            raise BadSetting(f"--set {key}: write POLICY.KEY=VALUE, with one of {', '.join(policies)}")
        chosen.setdefault(policy, {})[name] = value
    return chosen


def grid(standings: Standings, factor: float) -> Grid:
    """The table at one rate, by throughput."""
    from headway.report import Grid

    middles = standings.middles(factor)
    num_runs = max(len(scores) for (at, _), scores in standings.scores.items() if at == factor)
    rows = sorted(middles.items(), key=lambda entry: -entry[1].output_throughput)
    some = rows[0][1]
    return Grid(
        title=f"{factor:g} × the rate that vllm sustains here ({factor * standings.base_rate:.3g} requests/s), "
        f"median of {num_runs}",
        columns=[
            "policy",
            "tok/s",
            *("TTFT P50", "P95", "P99 ms"),
            *("ITL P50", "P99", "max ms"),
            *("preempt.", "recomp.", "wasted", "failed"),
        ],
        rows=[[policy, *_cells(score)] for policy, score in rows],
        note=f"Sample sizes of a run: {some.num_ttft:,} TTFT, {some.num_itl:,} ITL. Recomputed and wasted are tokens.",
    )


def _cells(score: Score) -> list[float]:
    return [
        score.output_throughput,
        *(score.ttft_p50_ms, score.ttft_p95_ms, score.ttft_p99_ms),
        *(score.itl_p50_ms, score.itl_p99_ms, score.itl_max_ms),
        *(score.num_preemptions, score.num_recomputed, score.num_wasted, score.num_failed),
    ]


def verdict(standings: Standings, factor: float) -> list[dict[str, Any]]:
    """What came of the project's claims at one rate."""
    from headway.bench.verdict import claims

    return [asdict(claim) for claim in claims(standings.middles(factor))]


def document(contest: Contest, standings: Standings, engine: Engine) -> dict[str, Any]:
    """Everything, for `--json`."""
    return {
        "base_rate": standings.base_rate,
        "is_complete": standings.is_complete,
        "engine": {"model": engine.name, "executor": engine.config.executor, "threads": engine.threads},
        "limits": asdict(engine.limits),
        "workload": asdict(contest.load),
        "repeats": contest.repeats,
        "skipped": standings.skipped,
        "rates": [
            {
                "factor": factor,
                "rate": factor * standings.base_rate,
                "policies": {policy: asdict(score) for policy, score in standings.middles(factor).items()},
                "runs": {
                    policy: [asdict(score) for score in scores]
                    for (at, policy), scores in standings.scores.items()
                    if at == factor
                },
                "claims": verdict(standings, factor),
            }
            for factor in contest.factors
        ],
    }


def _heading(heat: Any) -> str:  # noqa: ANN401  # a Heat; its module is imported when the command runs
    where = f"{heat.number}/{heat.num_heats}" if heat.num_heats else "first: what vllm sustains"
    rate = f" at {heat.factor:g} ×" if heat.num_heats else ""
    return f"{where}  {heat.policy}{rate}"


def _line(heat: Any, score: Score) -> str:  # noqa: ANN401  # as above
    return (
        f"{_heading(heat):<32} {score.output_throughput:7.1f} tok/s  TTFT P50 {score.ttft_p50_ms:9.1f} "
        f"P99 {score.ttft_p99_ms:9.1f} ms  ITL P50 {score.itl_p50_ms:7.1f} P99 {score.itl_p99_ms:8.1f} ms"
    )
