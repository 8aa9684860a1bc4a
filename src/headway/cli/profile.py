"""`headway profile`: where the time of a step goes, on the real model and this machine."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headway.cli import bench_options as options
from headway.cli import flags
from headway.cli.output import print_json, results

if TYPE_CHECKING:
    from headway.bench.stages import Profile, Yardsticks
    from headway.report import Cell, Grid

_WORDS = {
    "embed": "embedding, rotary angles",
    "norm": "norms, quantise",
    "qkv": "QKV matrix",
    "append": "RoPE, append to the cache",
    "attend": "attention",
    "output": "O matrix",
    "gate_up": "gate and up matrix",
    "gate": "SiLU x up, Hadamard, quantise",
    "down": "down matrix",
    "head": "head matrix",
    "argmax": "arg max",
    "wait": "waiting for threads",
    "call": "call: checks, start and end of threads",
    "pack": "Python: batch to arrays",
    "sample": "Python: sampling",
    "schedule": "Python: scheduling, events",
    "http": "HTTP, JSON, text, waiting for the network",
}

NumSeqs = Annotated[int, typer.Option("--decode", min=0, help="Sequences that decode at once; 0: leave decode out.")]
Context = Annotated[int, typer.Option(min=1, help="Tokens that each of them has.")]
NumSteps = Annotated[int, typer.Option("--steps", min=1, help="Decode steps to time; the faster half counts.")]
Prefill = Annotated[int, typer.Option(min=0, help="Tokens of the prompt to prefill; 0: leave prefill out.")]
Repeats = Annotated[int, typer.Option(min=1, help="Prompts to time; the faster half counts.")]
Http = Annotated[
    bool, typer.Option("--http", help="Also stream the decode from a server of its own: what it adds to a step.")
]


def profile(
    model: flags.Model = None,
    *,
    num_seqs: NumSeqs = 16,
    context: Context = 256,
    num_steps: NumSteps = 40,
    prefill: Prefill = 512,
    repeats: Repeats = 4,
    http: Http = False,
    weights: flags.Weights = None,
    kv_dtype: flags.KvDtype = None,
    kernels: flags.Kernels = None,
    threads: flags.Threads = None,
    max_num_batched_tokens: flags.MaxNumBatchedTokens = 512,
    as_json: flags.Json = False,
) -> None:
    """Show where the time of a step goes: every stage in ms, against what this machine can do."""
    given: dict[str, Any] = locals() | {"prefix_cache": "none", "executor": "native"}
    engine = options.build_local(given)
    from headway.bench.stages import StepProfiler, yardsticks

    try:
        measured = yardsticks(engine)
        profiler = StepProfiler(engine)
        found = [profiler.decode(num_seqs, context, num_steps)] if num_seqs else []
        found += [profiler.prefill(prefill, repeats)] if prefill else []
    finally:
        engine.core.executor.close()
    served = _served(given, num_seqs, context) if http and num_seqs else None
    if as_json:
        print_json(_document(engine.name, asdict(engine.compute), measured, found, served))
        return
    print(f"{engine.name}: {engine.compute.weights} weights, {engine.compute.kv_dtype} cache, ", end="")
    print(f"{engine.compute.kernels} kernels, {engine.compute.threads} threads")
    for one in found:
        results().print(_grid(one, measured).to_text() + "\n", markup=False, soft_wrap=True)
    if served is not None:
        print("\n".join(f"{name:28} {value:.3f}" for name, value in served.items()))


def _served(given: dict[str, Any], num_seqs: int, context: int) -> dict[str, float]:
    from headway.cli.profile_http import serve_decode

    words = ("model", "weights", "kv_dtype", "kernels", "threads", "max_num_batched_tokens")
    return serve_decode({word: given[word] for word in words}, num_seqs, context)


def _grid(profile: Profile, measured: Yardsticks) -> Grid:
    from headway.bench.stages import MATRICES
    from headway.report import Grid

    rows: list[list[Cell]] = []
    for stage in profile.stages:
        peak = measured.weight_products if stage.name in MATRICES else measured.float_products
        speed = stage.products / stage.seconds if stage.seconds else 0.0
        rate = stage.num_bytes / stage.seconds if stage.seconds else 0.0
        rows.append(
            [
                _WORDS[stage.name],
                1e3 * stage.seconds,
                100 * stage.seconds / profile.seconds,
                1e-9 * speed if speed else None,
                100 * speed / peak if speed and stage.name in MATRICES else None,
                1e-9 * rate if rate else None,
                100 * rate / measured.read_bytes if rate else None,
            ]
        )
    rows.append(["all", 1e3 * profile.seconds, 100.0, None, None, None, None])
    return Grid(
        title=f"{profile.work}: {profile.num_tokens / profile.seconds:,.0f} tokens/s "
        f"(mean of the faster {profile.num_timed} of {profile.num_run})",
        columns=["stage", "ms", "%", "GMAC/s", "% of peak", "GB/s", "% of read rate"],
        rows=rows,
        note=f"peak: {1e-9 * measured.weight_products:.0f} GMAC/s on registers alone; "
        f"read rate: {1e-9 * measured.read_bytes:.1f} GB/s; both measured now, all threads together",
    )


def _document(
    name: str,
    compute: dict[str, Any],
    measured: Yardsticks,
    found: list[Profile],
    served: dict[str, float] | None,
) -> dict[str, Any]:
    from headway.cli.bench_output import environment

    return {
        "model": name,
        "compute": compute,
        "yardsticks": asdict(measured),
        "profiles": [asdict(one) for one in found],
        "http": served,
        "environment": environment(),
    }
