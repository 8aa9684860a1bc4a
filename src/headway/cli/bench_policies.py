"""`headway bench policies`: every scheduler on one engine under one workload."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headway.cli import bench_options as options
from headway.cli import flags
from headway.cli.output import print_json
from headway.errors import BadSetting

if TYPE_CHECKING:
    from headway.bench.contest import Contest

_LOAD = "Workload"

NumRequests = Annotated[int, typer.Option(help="Requests of a run.", min=1, rich_help_panel=_LOAD)]
Repeats = Annotated[
    int, typer.Option(help="Rounds; the median of those that all have finished counts.", min=1, max=1000)
]
Rates = Annotated[
    str,
    typer.Option(
        metavar="X,Y,...", help="Arrival rates as multiples of what vllm sustains here.", rich_help_panel=_LOAD
    ),
]
BaseRate = Annotated[
    float | None,
    typer.Option(
        min=0.001,
        help="Requests per second that count as 1, whatever the speed of the machine.",
        show_default="measured first",
        rich_help_panel=_LOAD,
    ),
]
Timeout = Annotated[
    float, typer.Option("--timeout", help="Real seconds after which a request counts as failed.", min=1.0)
]
RunLog = Annotated[
    Path | None,
    typer.Option(
        "--log",
        help="Append finished runs to this file, and do not repeat those that it holds.",
        show_default=False,
        dir_okay=False,
    ),
]
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
    prompt_median: Annotated[float, typer.Option(help="Half the prompts are shorter.", rich_help_panel=_LOAD)] = 180,
    prompt_p90: Annotated[float, typer.Option(help="Nine in ten are shorter.", rich_help_panel=_LOAD)] = 900,
    output_median: Annotated[float, typer.Option(help="Half the answers are shorter.", rich_help_panel=_LOAD)] = 60,
    output_p90: Annotated[float, typer.Option(help="Nine in ten are shorter.", rich_help_panel=_LOAD)] = 200,
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
    max_num_batched_tokens: flags.MaxNumBatchedTokens = 2048,
    max_model_len: flags.MaxModelLen = 2048,
    num_blocks: flags.NumBlocks = None,
    kv_cache_memory: flags.KvCacheMemory = None,
    host_memory: flags.HostMemory = None,
    prefix_cache: flags.PrefixCache = "hashed",
    log: RunLog = None,
    as_json: flags.Json = False,
) -> int:
    """Run one mixed workload under all scheduling policies and compare what users would feel."""
    given: dict[str, Any] = locals()
    return _run(given)


def _run(given: dict[str, Any]) -> int:
    from headway.bench.policies import Arena, fit
    from headway.cli import bench_standings as standing
    from headway.cli.bench_screen import Screen
    from headway.cli.output import notices, results

    standing.check_log(given["log"])
    names = _names(given["only"])
    contest = _contest(given, names, options.settings_by_policy(given, names))
    engine = options.build_local({name: value for name, value in given.items() if name != "seed"})
    executor = engine.core.executor
    try:
        engine, contest, pacemaker = fit(engine, contest)
        with Screen() as screen:
            arena = Arena(
                engine,
                contest,
                pacemaker=pacemaker,
                log=standing.open_log(given["log"], contest, engine),
                on_progress=lambda heat, progress: screen.show(standing.heading(heat), progress),
                on_record=lambda heat, _, score: screen.log(standing.line(heat, score)),
            )
            standings = screen.run(arena.run())
    finally:
        executor.close()
    if given["as_json"]:
        print_json(standing.document(contest, standings, engine))
    else:
        for line in standing.lines(contest, standings):
            results().print(line, markup=False, soft_wrap=True)
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


def _contest(given: Mapping[str, Any], names: list[str], settings: Mapping[str, Mapping[str, str]]) -> Contest:
    """What the flags ask for. Raises `BadSetting`, before any model is loaded."""
    from headway.bench.contest import Contest
    from headway.bench.mixed import MixedLoad

    load = MixedLoad(
        num_requests=given["num_requests"],
        prompt_median=given["prompt_median"],
        prompt_p90=given["prompt_p90"],
        output_median=given["output_median"],
        output_p90=given["output_p90"],
        context=given["max_model_len"],
        seed=given["seed"],
    )
    load.workload(given["base_rate"] or 1.0, 0)
    return Contest(
        policies=names,
        load=load,
        factors=_numbers("--rates", given["rates"]),
        repeats=given["repeats"],
        base_rate=given["base_rate"],
        timeout_s=given["timeout_s"],
        settings=settings,
    )


def _numbers(flag: str, text: str) -> list[float]:
    try:
        numbers = [float(part) for part in text.split(",")]
    except ValueError:
        numbers = []
    if not numbers or not all(0 < number < 1e3 for number in numbers):
        raise BadSetting(f"{flag} is {text!r}; it must be numbers above 0 and below 1000 with commas between them")
    return list(dict.fromkeys(numbers))
