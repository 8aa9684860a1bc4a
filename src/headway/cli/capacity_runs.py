"""How `headway bench capacity` measures one rate."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from headway.cli import bench_options as options
from headway.cli.bench_offline import measure_engine
from headway.cli.bench_screen import Screen
from headway.cli.bench_serve import measure_server
from headway.cli.workload_flags import Asked

if TYPE_CHECKING:
    from headway.bench.capacity import Attain
    from headway.report import RunRecord
    from headway.workload import Workload


def server(asked: Asked, given: dict[str, Any], screen: Screen) -> tuple[Attain, Callable[[], None]]:
    """Runs against a server; nothing to close behind them."""
    tokenizer = options.open_tokenizer(given["tokenizer"])

    async def attain(rate: float, repeat: int) -> float:
        workload = _at(asked, given, rate, repeat)
        return _attainment(await measure_server(workload, tokenizer, given, screen))

    return attain, lambda: None


def engine(asked: Asked, given: dict[str, Any], screen: Screen) -> tuple[Attain, Callable[[], None]]:
    """Runs on one loaded model, each from an empty cache; what to call when all are done."""
    from headway.engine import with_policy

    built = options.build_local(given)

    async def attain(rate: float, repeat: int) -> float:
        workload = _at(asked, given, rate, repeat)
        return _attainment(await measure_engine(workload, with_policy(built, built.config), given, screen))

    return attain, built.core.executor.close


def _at(asked: Asked, given: dict[str, Any], rate: float, repeat: int) -> Workload:
    """The workload at a rate; each repeat has a seed of its own."""
    seed = int(asked.flags.get("seed") or 0) + repeat
    count_tokens = options.late_counter(given["tokenizer"] or given["model"])
    return asked.load(count_tokens, {"rate": repr(rate), "seed": str(seed)})


def _attainment(run: RunRecord) -> float:
    """The share within the SLO. A run that was cancelled has none."""
    from headway.report import measure

    if not run.is_complete:
        raise asyncio.CancelledError
    return measure(run).total.attainment or 0.0
