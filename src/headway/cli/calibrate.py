"""`headway calibrate`: measure what a step costs on this machine, for simulations of it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headway.cli import flags
from headway.cli.output import notices, print_json, results

if TYPE_CHECKING:
    from headway.engine import Engine

_NOISY = 0.3

Output = Annotated[
    Path | None,
    typer.Option("--output", "-o", metavar="FILE", help="Where to write.", show_default="what --hardware this reads"),
]
Seconds = Annotated[float, typer.Option("--seconds", min=1.0, max=600.0, help="How long to measure.")]
MostTokens = Annotated[
    int, typer.Option("--most-tokens", min=64, max=8192, help="Tokens of the largest step measured.")
]


def calibrate(
    model: flags.Model = None,
    *,
    output: Output = None,
    seconds: Seconds = 75.0,
    most_tokens: MostTokens = 1024,
    executor: flags.Executor = "native",
    weights: flags.Weights = None,
    kv_dtype: flags.KvDtype = None,
    kernels: flags.Kernels = None,
    threads: flags.Threads = None,
    max_model_len: flags.MaxModelLen = None,
    block_size: flags.BlockSize = 16,
    num_blocks: flags.NumBlocks = None,
    kv_cache_memory: flags.KvCacheMemory = None,
    as_json: flags.Json = False,
) -> int:
    """Measure this machine's engine and write the step times that simulate and tune take."""
    given: dict[str, Any] = locals()
    return _run(given)


def _run(given: dict[str, Any]) -> int:
    from headway.cli.bench_output import require_writable
    from headway.cli.calibrating import measure, residuals, text_of
    from headway.cli.calibrations import default_file
    from headway.sim import as_document, write_calibration

    path = given["output"] or default_file()
    if given["output"] is not None:
        require_writable(path, f"cannot write {path}")
    engine = build(given)
    try:
        calibration, fit = measure(engine, given["seconds"], given["most_tokens"])
    finally:
        engine.core.executor.close()
    if given["as_json"]:
        print_json({"file": str(path), **as_document(calibration), "residuals": residuals(fit)})
        write_calibration(calibration, path)
        return 0
    results().print(text_of(calibration, fit), markup=False, soft_wrap=True)
    if calibration.p95_error > _NOISY:
        notices().print(
            f"! one step in twenty is off by more than {calibration.p95_error:.0%}: other programs ran, or the "
            "machine changed its speed; calibrate when it is idle",
            markup=False,
            soft_wrap=True,
        )
    write_calibration(calibration, path)
    notices().print(f"written to {path}", markup=False, soft_wrap=True)
    return 0


def build(given: dict[str, Any]) -> Engine:
    """The engine to measure, under the flags that are named like fields of `EngineConfig`."""
    from headway.cli.bench_options import build_local

    return build_local({**given, "max_num_batched_tokens": max(512, given.get("most_tokens", 512))})
