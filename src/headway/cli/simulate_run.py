"""What `headway simulate` does, once its flags are read."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from headway.cli import bench_output as out
from headway.cli import calibrations, flags
from headway.cli import simulate_options as options
from headway.cli.values import parse_settings
from headway.cli.workload_flags import Asked, tell_left_out
from headway.errors import BadSetting

if TYPE_CHECKING:
    from headway.report import RunRecord
    from headway.sim import Calibration, Plan, Plant, Pool, Site
    from headway.workload import Workload


def run(
    asked: Asked,
    *,
    policy: flags.PolicyName = "headway",
    settings: flags.Settings = None,
    max_num_seqs: flags.MaxNumSeqs = 256,
    max_num_batched_tokens: flags.MaxNumBatchedTokens = 2048,
    long_prefill_token_threshold: flags.LongPrefill = 0,
    model: options.ModelCard = "Llama-3.1-8B",
    hardware: options.Hardware = "H100",
    tensor: options.Tensor = 1,
    pipeline: options.Pipeline = 1,
    utilization: options.Utilization = 0.9,
    max_model_len: flags.MaxModelLen = None,
    block_size: flags.BlockSize = 16,
    num_blocks: flags.NumBlocks = None,
    host_memory: flags.HostMemory = None,
    watermark: flags.Watermark = 0.0,
    prefix_cache: flags.PrefixCache = "hashed",
    engine: options.Engine = "cuda-graph",
    profile: options.Profile = None,
    vidur: options.Vidur = None,
    calibration: options.Calibrated = None,
    replicas: options.Replicas = 1,
    router: options.RouterName = "least-loaded",
    decode_replicas: options.Decoders = 0,
    transfer_gb_s: options.Transfer = 50.0,
    label: out.Label = "",
    output: out.ResultFile = None,
    csv: out.CsvFile = None,
    html: out.HtmlFile = None,
    save_detailed: out.Detailed = False,
    trace_file: options.TraceFile = None,
    step_log: options.StepLogFile = None,
    as_json: flags.Json = False,
) -> int:
    """Run a workload in virtual time."""
    given: dict[str, Any] = locals()
    return carry_out(asked, given)


def carry_out(asked: Asked, given: dict[str, Any]) -> int:
    """The command's work."""
    out.check_paths(given)
    workload = asked.load()
    tell_left_out(workload)
    if workload.is_endless:
        raise BadSetting("the workload never ends; say --num-requests or --duration-s")
    return out.report(_measure(workload, given), given)


def _measure(workload: Workload, given: dict[str, Any]) -> RunRecord:
    from headway.sim import ChromeTrace, Interrupted, Pool, StepLog, make_router
    from headway.sim import simulate as run_simulation

    calibration = calibrations.named(given["hardware"])
    site = _site(given) if calibration is None else None
    plant = _calibrated(calibration, given) if calibration is not None else _site(given).plant()
    with ExitStack() as files:
        observers = []
        if given["trace_file"] is not None:
            trace = ChromeTrace(files.enter_context(_open(given["trace_file"])))
            files.callback(trace.close)
            observers.append(trace.replica)
        if given["step_log"] is not None:
            observers.append(StepLog(files.enter_context(_open(given["step_log"]))).replica)
        pool = Pool(
            plant=plant,
            plan=_plan(given),
            num_replicas=_count("replicas", given["replicas"]),
            router=make_router(given["router"]),
            observers=observers,
        )
        with options.shown(workload) as items:
            try:
                record = run_simulation(
                    items,
                    pool,
                    weights=workload.weights,
                    duration_s=float("inf") if workload.duration_s is None else workload.duration_s,
                    label=workload.name,
                    **_split(site, pool, given),
                )
            except Interrupted as stop:
                record = stop.record
    return replace(
        record, target=_target(given, pool), workload=workload.content, is_closed_loop=workload.is_closed_loop
    )


def _site(given: dict[str, Any]) -> Site:
    from headway.sim import Parallel, Site, hardware_card, model_card, overheads

    return Site(
        model=model_card(given["model"]),
        hardware=hardware_card(given["hardware"]),
        parallel=Parallel(tensor=given["tensor"], pipeline=given["pipeline"]),
        overheads=overheads(given["engine"]),
        profile=given["profile"],
        vidur=given["vidur"],
        fitted=given["calibration"],
        block_size=given["block_size"],
        num_blocks=given["num_blocks"],
        utilization=given["utilization"],
        host_memory=given["host_memory"],
        prefix_cache=given["prefix_cache"],
        context=given["max_model_len"],
    )


def _calibrated(calibration: Calibration, given: dict[str, Any]) -> Plant:
    """The engine that was calibrated: its model, its device, one of it. Raises `BadSetting` for flags of cards."""
    from headway.sim import calibrated_plant

    for name, default in (("profile", None), ("vidur", None), ("calibration", None), ("tensor", 1), ("pipeline", 1)):
        if given[name] != default:
            raise BadSetting(f"{name} goes with a hardware card; {given['hardware']} is a calibrated engine")
    given |= {"model": calibration.about.get("model"), "engine": "as calibrated"}
    return calibrated_plant(
        calibration,
        num_blocks=given["num_blocks"],
        block_size=given["block_size"],
        num_host_blocks=_host_blocks(calibration, given),
        prefix_cache=given["prefix_cache"],
        context=given["max_model_len"],
    )


def _host_blocks(calibration: Calibration, given: dict[str, Any]) -> int | None:
    """Blocks of the host tier, for which the calibration must say how large one is."""
    if given["host_memory"] is None:
        return None
    if not (token_bytes := calibration.engine.get("token_bytes")):
        raise BadSetting(f"{calibration.origin} does not say how large a KV block is; run `headway calibrate` again")
    return int(given["host_memory"] // (token_bytes * given["block_size"]))


def _plan(given: dict[str, Any]) -> Plan:
    from headway.sim import Plan

    limits = ("max_num_seqs", "max_num_batched_tokens", "long_prefill_token_threshold", "watermark")
    return Plan(
        policy=given["policy"],
        settings=parse_settings(given["settings"] or ()),
        defaults={name: given[name] for name in limits},
    )


def _split(site: Site | None, pool: Pool, given: dict[str, Any]) -> dict[str, Any]:
    """The second half of a deployment whose replicas compute either prompts or answers; empty without one."""
    from headway.sim import Link, decoding, decoding_plan, handed_over, make_router

    if not given["decode_replicas"]:
        return {}
    if site is None:
        raise BadSetting("--decode-replicas needs a model card and a hardware card: it moves KV between devices")
    if not 0.001 <= given["transfer_gb_s"] <= 1e6:
        raise BadSetting(f"transfer_gb_s is {given['transfer_gb_s']}; it must be between 0.001 and 1000000")
    decoders = replace(
        pool,
        plant=decoding(pool.plant),
        plan=decoding_plan(pool.plan),
        num_replicas=_count("decode_replicas", given["decode_replicas"]),
        router=make_router("least-loaded"),
    )
    link = Link(bandwidth=given["transfer_gb_s"] * 1e9, latency_s=20e-6)
    return {"decoders": decoders, "hand_over": handed_over(site.model, link)}


def _target(given: dict[str, Any], pool: Pool) -> dict[str, object]:
    names = ("policy", "model", "hardware", "tensor", "pipeline", "engine", "replicas", "router", "decode_replicas")
    sources = ("profile", "vidur", "calibration")
    return {
        "kind": "simulator",
        **{name: given[name] for name in names},
        **{name: str(given[name]) for name in sources if given[name] is not None},
        "settings": dict(pool.plan.settings),
        "num_blocks": pool.plant.num_blocks,
        "block_size": pool.plant.block_size,
    }


def _count(name: str, value: int) -> int:
    if not 1 <= value <= 10_000:
        raise BadSetting(f"{name} is {value}; it must be between 1 and 10000")
    return value


def _open(path: Path) -> TextIO:
    try:
        return path.open("w", encoding="utf-8")
    except OSError as error:
        raise BadSetting(f"cannot write {path}: {error.strerror}") from None
