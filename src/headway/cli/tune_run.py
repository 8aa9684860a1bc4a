"""What `headway tune` does, once its flags are read."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headway.cli import bench_options as options
from headway.cli import bench_output as out
from headway.cli import flags
from headway.cli.bench_output import INTERRUPTED
from headway.cli.output import notices, print_json, results
from headway.cli.workload_flags import Asked, tell_left_out
from headway.errors import BadSetting

if TYPE_CHECKING:
    from headway.sim import Calibration
    from headway.tune import Outcome

FAILED = 1
_RESULTS, _SEARCH = "Results", "Search"

SloFile = Annotated[
    Path,
    typer.Option("--slo", metavar="FILE", help="The promises: a .toml, .yaml or .json table, or lines of `key value`."),
]
ConfigOut = Annotated[
    Path, typer.Option("--output", "-o", metavar="FILE", help="The config file to write.", rich_help_panel=_RESULTS)
]
Evidence = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE", help="Every run, as JSON.", show_default="beside the config file", rich_help_panel=_RESULTS
    ),
]
Page = Annotated[
    Path | None,
    typer.Option(
        "--html", metavar="FILE", help="The report.", show_default="beside the config file", rich_help_panel=_RESULTS
    ),
]
CalibrationFile = Annotated[
    str | None,
    typer.Option(
        "--calibration",
        metavar="FILE|this",
        help="What `headway calibrate` wrote of this engine.",
        show_default="calibrate first",
    ),
]
CalibrateSeconds = Annotated[float, typer.Option(min=1.0, max=600.0, help="How long to calibrate.")]
SimulateOnly = Annotated[
    bool, typer.Option("--simulate-only", help="Run nothing live; with --calibration not even a model is loaded.")
]
NumTried = Annotated[
    int,
    typer.Option("--max-requests", min=10, help="Requests of a run, of the workload's first.", rich_help_panel=_SEARCH),
]
Quick = Annotated[bool, typer.Option("--quick", help="Try fewer settings: a first look.", rich_help_panel=_SEARCH)]
NumVerified = Annotated[
    int, typer.Option("--verify", min=1, max=20, help="Settings to run live.", rich_help_panel=_SEARCH)
]


def run(
    asked: Asked,
    *,
    slo: SloFile,
    output: ConfigOut = Path("headway.toml"),
    evidence: Evidence = None,
    html: Page = None,
    model: options.LocalModel = None,
    calibration: CalibrationFile = None,
    calibrate_seconds: CalibrateSeconds = 75.0,
    simulate_only: SimulateOnly = False,
    policy: flags.PolicyName = "headway",
    max_requests: NumTried = 200,
    verify: NumVerified = 3,
    quick: Quick = False,
    executor: options.ExecutorName = None,
    weights: flags.Weights = None,
    kv_dtype: flags.KvDtype = None,
    threads: flags.Threads = None,
    max_model_len: flags.MaxModelLen = None,
    num_blocks: flags.NumBlocks = None,
    kv_cache_memory: flags.KvCacheMemory = None,
    prefix_cache: flags.PrefixCache = "hashed",
    as_json: flags.Json = False,
) -> int:
    """The command."""
    given: dict[str, Any] = locals()
    return carry_out(asked, given)


def carry_out(asked: Asked, given: dict[str, Any]) -> int:
    """The command's work: everything that can be wrong is found before anything takes long."""
    from headway.cli.tune_work import calibration_of, known_calibration, needs_engine, search
    from headway.tune import Traffic, read_slo

    table = read_slo(given["slo"])
    paths = _paths(given)
    workload = asked.load(options.late_counter(given["model"]))
    tell_left_out(workload)
    traffic = Traffic.of(workload, given["max_requests"])
    known = known_calibration(given)
    if not needs_engine(known, given):
        assert known is not None, "without an engine there is a calibration"
        return _report(search(traffic, table, known, given), known, paths, given)
    engine = options.build_local({name: value for name, value in given.items() if name not in _OWN})
    try:
        known = calibration_of(engine, known, given)
        outcome = search(traffic, table, known, given, engine=engine, workload=workload)
    finally:
        engine.core.executor.close()
    return _report(outcome, known, paths, given)


_OWN = ("policy", "seed", "settings")
"""Flags that the search decides on, not the engine that is built for it."""


def _paths(given: Mapping[str, Any]) -> dict[str, Path]:
    config = given["output"]
    found = {
        "config": config,
        "evidence": given["evidence"] or config.with_suffix(".json"),
        "html": given["html"] or config.with_suffix(".html"),
    }
    for path in found.values():
        out.require_writable(path, f"cannot write {path}")
    if len(set(found.values())) < len(found):
        raise BadSetting(f"the config file, the evidence and the report are the same file: {config}")
    return found


def _report(outcome: Outcome, known: Calibration, paths: Mapping[str, Path], given: Mapping[str, Any]) -> int:
    from headway.cli.tune_text import config_of, summary_text
    from headway.tune import as_document, tuning_page

    config = config_of(outcome, known, given)
    document = {**as_document(outcome), "about": dict(known.about), "config": config}
    texts = {
        "config": config,
        "evidence": json.dumps(document, indent=2, ensure_ascii=False) + "\n",
        "html": tuning_page(outcome, known.about, config),
    }
    out.write_then(
        {path: partial(out.write, content=texts[name]) for name, path in paths.items()},
        lambda: (
            print_json({**document, "files": {name: str(path) for name, path in paths.items()}})
            if given["as_json"]
            else results().print(summary_text(outcome), markup=False, soft_wrap=True)
        ),
    )
    if not given["as_json"]:
        notices().print(f"written: {', '.join(map(str, paths.values()))}", markup=False, soft_wrap=True)
    if not outcome.is_complete:
        return INTERRUPTED
    return 0 if outcome.is_kept else FAILED
