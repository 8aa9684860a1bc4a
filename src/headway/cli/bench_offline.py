"""`headway bench offline`: measure the engine in this process, without a server between."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headway.cli import bench_options as options
from headway.cli import bench_output as out
from headway.cli import flags
from headway.cli.bench_screen import Screen
from headway.cli.workload_flags import Asked, tell_left_out

if TYPE_CHECKING:
    from headway.engine import Engine
    from headway.report import RunRecord
    from headway.workload import Workload


def offline(
    asked: Asked,
    *,
    model: options.LocalModel = None,
    executor: options.ExecutorName = None,
    threads: flags.Threads = None,
    policy: flags.PolicyName = "headway",
    settings: flags.Settings = None,
    max_num_seqs: flags.MaxNumSeqs = 256,
    max_num_batched_tokens: flags.MaxNumBatchedTokens = 512,
    long_prefill_token_threshold: flags.LongPrefill = 0,
    max_num_prefill_tokens: flags.MaxNumPrefill = 0,
    itl_target_ms: flags.ItlTarget = 0.0,
    max_model_len: flags.MaxModelLen = None,
    block_size: flags.BlockSize = 16,
    num_blocks: flags.NumBlocks = None,
    kv_cache_memory: flags.KvCacheMemory = None,
    host_memory: flags.HostMemory = None,
    prefix_cache: flags.PrefixCache = "hashed",
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
    """Send a workload to an engine in this process. Answers are exactly as long as the workload says."""
    given: dict[str, Any] = locals()
    return run(asked, given)


def run(asked: Asked, given: dict[str, Any]) -> int:
    """The command's work."""
    out.check_paths(given)
    workload = asked.load(options.late_counter(given["model"]))  # a mistake in it shows before weights are loaded
    tell_left_out(workload)
    engine = options.build_local(given)
    try:
        with Screen() as screen:
            record = screen.run(measure_engine(workload, engine, given, screen))
    finally:
        engine.core.executor.close()
    return out.report(record, given)


async def measure_engine(workload: Workload, engine: Engine, given: dict[str, Any], screen: Screen) -> RunRecord:
    """One run on an engine that has run nothing yet."""
    from headway.bench import EngineTarget, IdCalls, Runner

    plan = options.run_plan(workload, given)
    calls = IdCalls(options.prompt_maker(workload, engine.tokenizer, given))
    async with EngineTarget(engine) as target:
        runner = Runner(
            target, calls, engine.clock, plan, on_progress=lambda progress: screen.show(plan.label, progress)
        )
        return await runner.run()
