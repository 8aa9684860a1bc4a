"""`headway bench serve`: measure an OpenAI-compatible server, ours or anyone's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headway.cli import bench_options as options
from headway.cli import bench_output as out
from headway.cli import flags
from headway.cli.bench_screen import Screen
from headway.cli.workload_flags import Asked, tell_left_out

if TYPE_CHECKING:
    from headway.models import Tokenizer
    from headway.report import RunRecord
    from headway.workload import Workload


def serve(
    asked: Asked,
    *,
    url: options.Url = "http://127.0.0.1:8000",
    endpoint: options.Endpoint = "completions",
    model: options.ServedModel = None,
    api_key: options.ApiKey = None,
    tokenizer: options.TokenizerOf = None,
    ignore_eos: options.IgnoreEos = False,
    send_priority: options.SendPriority = False,
    send_ids: options.SendIds = False,
    no_usage: options.NoUsage = False,
    extra_body: options.ExtraBody = None,
    header: options.Headers = None,
    max_concurrency: options.MaxConcurrency = None,
    timeout_s: options.Timeout = None,
    warmup_s: options.WarmupS = 0.0,
    num_warmups: options.NumWarmups = 1,
    same_prompts: options.SamePrompts = False,
    label: out.Label = "",
    output: out.ResultFile = None,
    csv: out.CsvFile = None,
    html: out.HtmlFile = None,
    save_detailed: out.Detailed = False,
    as_json: flags.Json = False,
) -> int:
    """Send a workload to a server at its intended times and report what its clients felt."""
    given: dict[str, Any] = locals()
    return run(asked, given)


def run(asked: Asked, given: dict[str, Any]) -> int:
    """The command's work."""
    out.check_paths(given)
    found = options.open_tokenizer(given["tokenizer"])
    workload = asked.load(options.counter(found))
    tell_left_out(workload)
    with Screen() as screen:
        record = screen.run(measure_server(workload, found, given, screen))
    return out.report(record, given)


async def measure_server(
    workload: Workload, tokenizer: Tokenizer | None, given: dict[str, Any], screen: Screen
) -> RunRecord:
    """One run against the server of the flags."""
    from headway.bench import HttpTarget, Runner
    from headway.clock import WallClock

    clock = WallClock()
    target = HttpTarget(options.http_settings(given), clock)
    plan = options.run_plan(workload, given)
    runner = Runner(
        target,
        options.server_calls(workload, tokenizer, given),
        clock,
        plan,
        tokenize=options.counter(tokenizer),
        on_progress=lambda progress: screen.show(plan.label, progress),
    )
    try:
        return await runner.run()
    finally:
        await target.close()
