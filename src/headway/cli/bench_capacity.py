"""`headway bench capacity`: the highest rate at which enough requests meet their SLO."""

from __future__ import annotations

import statistics
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headway.cli import bench_options as options
from headway.cli import flags
from headway.cli.output import notices, print_json, results
from headway.cli.workload_flags import Asked, tell_left_out
from headway.errors import BadSetting

if TYPE_CHECKING:
    from headway.bench.capacity import Capacity, Search, Trial
    from headway.report import Grid
    from headway.workload import Workload

_PANEL = "Search"

MaybeUrl = Annotated[
    str | None, typer.Option(help="Where the server is.", show_default="none: the engine in this process")
]
Goal = Annotated[
    float, typer.Option("--attainment", help="Share of requests that must meet their SLO.", rich_help_panel=_PANEL)
]
StartRate = Annotated[float, typer.Option(help="First rate, requests per second.", rich_help_panel=_PANEL)]
MaxRate = Annotated[float, typer.Option(help="Highest rate to try.", rich_help_panel=_PANEL)]
Tolerance = Annotated[float, typer.Option(help="How close to come: 0.05 is 5 %.", rich_help_panel=_PANEL)]
Repeats = Annotated[int, typer.Option(help="Runs per rate; the median counts.", rich_help_panel=_PANEL)]


def capacity(
    asked: Asked,
    *,
    url: MaybeUrl = None,
    goal: Goal = 0.9,
    start_rate: StartRate = 1.0,
    max_rate: MaxRate = 1000.0,
    tolerance: Tolerance = 0.05,
    repeats: Repeats = 3,
    endpoint: options.Endpoint = "completions",
    model: options.AnyModel = None,
    api_key: options.ApiKey = None,
    tokenizer: options.TokenizerOf = None,
    ignore_eos: options.IgnoreEos = False,
    send_priority: options.SendPriority = False,
    send_ids: options.SendIds = False,
    no_usage: options.NoUsage = False,
    extra_body: options.ExtraBody = None,
    header: options.Headers = None,
    executor: options.ExecutorName = None,
    threads: flags.Threads = None,
    policy: flags.PolicyName = "headway",
    settings: flags.Settings = None,
    max_num_seqs: flags.MaxNumSeqs = 256,
    max_num_batched_tokens: flags.MaxNumBatchedTokens = 512,
    num_blocks: flags.NumBlocks = None,
    kv_cache_memory: flags.KvCacheMemory = None,
    prefix_cache: flags.PrefixCache = "hashed",
    timeout_s: options.Timeout = None,
    warmup_s: options.WarmupS = 0.0,
    num_warmups: options.NumWarmups = 1,
    same_prompts: options.SamePrompts = False,
    as_json: flags.Json = False,
) -> int:
    """Find the highest rate at which a share of the requests meets its SLO (--goodput, or the specification's)."""
    given: dict[str, Any] = locals()
    return _run(asked, given)


def _run(asked: Asked, given: dict[str, Any]) -> int:
    from headway.bench.capacity import Search, find_capacity
    from headway.cli.bench_screen import Screen
    from headway.cli.capacity_runs import engine, server

    names = ("goal", "start_rate", "max_rate", "tolerance", "repeats")
    search = Search(**{name: given[name] for name in names})
    workload = asked.load(options.late_counter(given["tokenizer"] or given["model"]), {"rate": str(search.start_rate)})
    tell_left_out(workload)
    _require_slo(workload)
    with Screen() as screen:
        attain, close = server(asked, given, screen) if given["url"] else engine(asked, given, screen)
        try:
            found = screen.run(find_capacity(attain, search, lambda trial: screen.log(_line(trial))))
        finally:
            close()
    return _report(found, search, given)


def _require_slo(workload: Workload) -> None:
    if workload.is_closed_loop:
        raise BadSetting("a closed loop has no rate to search for; leave --users out")
    if all(item.slo.is_empty and item.deadline_s is None for item in workload.items()):
        raise BadSetting("no request has an SLO to meet; give one, such as --goodput ttft:500 --goodput tpot:50")


def _line(trial: Trial) -> str:
    shares = ", ".join(f"{share:.1%}" for share in trial.attainments)
    word = "passed" if trial.passed else "failed"
    return f"{trial.rate:9.3f} requests/s: {shares}: {word}"


def _report(found: Capacity, search: Search, given: dict[str, Any]) -> int:
    if given["as_json"]:
        trials = [asdict(trial) | {"attainment": trial.attainment} for trial in found.trials]
        print_json(
            {
                "capacity": found.rate,
                "failed_rate": found.failed_rate,
                "attainment_goal": search.goal,
                "repeats": search.repeats,
                "is_complete": found.is_complete,
                "trials": trials,
            }
        )
    else:
        results().print(capacity_grid(found, search).to_text(), markup=False, soft_wrap=True)
    if not found.is_complete:
        notices().print("headway bench: the search was interrupted; this is what was measured until then")
        return 130
    return 0 if found.rate else 1


def capacity_grid(found: Capacity, search: Search) -> Grid:
    """All rates that were tried, and what they came to."""
    from headway.report import Grid

    note = f"Median of {search.repeats} runs per rate, each with its own seed."
    size = f"{found.rate:.4g}"
    failed = "none failed" if found.failed_rate is None else f"{found.failed_rate:.4g} failed"
    if found.rate and found.failed_rate is None:
        size = f"at least {size}"
        note += (
            " No rate failed, so this is no limit of the server: few requests all come at once at a high rate, and say "
            "nothing about a lasting one. Give more (--num-requests), or a higher --max-rate."
        )
    return Grid(
        title=f"Capacity at {search.goal:.0%} attainment: {size} requests/s ({failed})",
        columns=["requests/s", "attainment, %", "lowest, %", "highest, %", "passed"],
        rows=[
            [
                f"{trial.rate:.4g}",
                100 * statistics.median(trial.attainments),
                100 * min(trial.attainments),
                100 * max(trial.attainments),
                "yes" if trial.passed else "no",
            ]
            for trial in sorted(found.trials, key=lambda trial: trial.rate)
        ],
        note=note,
    )
