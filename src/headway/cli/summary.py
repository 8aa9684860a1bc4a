"""What `headway serve` says when it is ready."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Self

from headway.cli.output import notices

if TYPE_CHECKING:
    from rich.progress import TaskID

    from headway.engine import Engine
    from headway.executor.registry import Compute

Rows = list[tuple[str, str]]


def rows(engine: Engine, names: Sequence[str], url: str) -> Rows:
    """The facts of a started server: what it runs, what it holds, where it is."""
    config, limits, model = engine.config, engine.limits, engine.model
    context = f"{limits.max_model_len:,} tokens"
    if limits.lowered_from is not None:
        context += f" (the model allows {limits.lowered_from:,}; --kv-cache-memory raises it)"
    compute = engine.compute
    threads = "" if compute.threads is None else f", {compute.threads} threads"
    settings = "".join(f", {key}={value}" for key, value in config.policy_settings.items())
    most_seqs = limits.max_num_seqs or config.max_num_seqs
    return [
        ("model", f"{', '.join(names)} ({model.num_layers} layers, vocabulary {model.vocab_size:,})"),
        ("weights", _weights(compute, model.quantisation)),
        ("executor", f"{config.executor}, {compute.kernels} kernels{threads}"),
        ("policy", f"{config.policy}{settings}"),
        ("limits", f"{most_seqs:,} sequences, {config.max_num_batched_tokens:,} tokens a step"),
        ("context", context),
        ("KV cache", f"{_kv(limits.num_blocks, limits.block_size, limits.kv_bytes)}, {compute.kv_dtype}"),
        ("prefix cache", config.prefix_cache),
        ("serving", f"{url} (API at {url}/v1, docs at {url}/docs)"),
    ]


def _weights(compute: Compute, stored: str) -> str:
    """Their format and memory; a file of 4 or 5 bits a weight grows when it is loaded."""
    grows = "; 4- and 5-bit weights grow" if stored.startswith(("Q4", "Q5")) else ""
    return f"{compute.weights}, {compute.weight_bytes / 2**20:,.0f} MiB (stored as {stored}{grows})"


def show(found: Rows) -> None:
    """Print the facts on stderr: framed on a terminal, plain lines elsewhere."""
    if not sys.stderr.isatty():
        for name, fact in found:
            print(f"{name + ':':<14}{fact}", file=sys.stderr, flush=True)
        return
    from rich.panel import Panel
    from rich.table import Table

    grid = Table.grid(padding=(0, 2))
    for name, fact in found:
        grid.add_row(f"[bold]{name}[/bold]", fact)
    notices().print(Panel(grid, title="headway", expand=False))


class LoadingBar:
    """A bar on the terminal while something takes long; silent elsewhere."""

    def __init__(self) -> None:
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
        self._bar = Progress(*columns, console=notices(), transient=True, disable=not sys.stderr.isatty())
        self._tasks: dict[str, TaskID] = {}

    def show(self, stage: str, done: int, total: int | None) -> None:
        """Draw `done` of `total` steps of a stage; None where nobody knows how many there will be."""
        if self._bar.disable:
            return
        if not self._tasks:
            self._bar.start()
        if stage not in self._tasks:
            self._tasks[stage] = self._bar.add_task(stage, total=total)
        self._bar.update(self._tasks[stage], completed=done)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._tasks:
            self._bar.stop()


def _kv(num_blocks: int, block_size: int, num_bytes: int) -> str:
    return f"{num_blocks:,} blocks of {block_size}, {num_blocks * block_size:,} tokens, {num_bytes / 2**20:,.0f} MiB"
