"""How `headway bench overload` runs one load, with a probe beside it or without."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from headway.cli.bench_screen import Screen

if TYPE_CHECKING:
    from headway.bench import Runner
    from headway.bench.overload import OverloadLoad, Probe
    from headway.report import RunRecord
    from headway.workload import WorkItem

_REFUSED = re.compile(r'^headway:admission_rejections_total\{.*?reason="(\w+)".*?\} (\S+)$', re.MULTILINE)


class Track:
    """Runs of one load on one server."""

    def __init__(self, load: OverloadLoad, url: str, given: dict[str, Any], screen: Screen) -> None:
        self._load, self._url, self._given, self._screen = load, url, given, screen
        self._num_runs = 0

    def set_limit(self, ttft_limit_ms: float) -> None:
        """From here on the server refuses what it predicts to begin later; 0: nothing for that."""
        import httpx

        patch = {"ttft_limit_ms": ttft_limit_ms}
        httpx.patch(f"{self._url}/admin/config", json=patch, timeout=60.0).raise_for_status()

    def refused_by_reason(self) -> dict[str, int]:
        """How many requests the server refused so far, as it counts them."""
        import httpx

        page = httpx.get(f"{self._url}/metrics", timeout=60.0).text
        found = {reason: int(float(value)) for reason, value in _REFUSED.findall(page)}
        return {reason: num for reason, num in found.items() if num}

    async def run(
        self,
        label: str,
        items: Sequence[WorkItem],
        *,
        is_closed: bool = False,
        pairs: list[tuple[float, float]] | None = None,
    ) -> RunRecord:
        """One run; with `pairs`, a probe beside it, whose findings are added there."""
        from headway.bench import HttpSettings, HttpTarget, Runner, RunPlan
        from headway.bench.ids import AnyIds
        from headway.bench.overload import Probe
        from headway.clock import WallClock
        from headway.models import open_model

        clock = WallClock()
        self._num_runs += 1
        calls = AnyIds(open_model(self._given["model"]).tokenizer.vocab_size, self._num_runs)
        target = HttpTarget(HttpSettings(url=self._url, fixed_length=True), clock)
        plan = RunPlan(
            items=lambda: items,
            label=label,
            num_total=None if is_closed else len(items),
            duration_s=self._load.duration_s if is_closed else None,
            is_closed_loop=is_closed,
            num_warmups=1,
        )
        runner = Runner(target, calls, clock, plan, on_progress=lambda progress: self._screen.show(label, progress))
        probe = None
        if pairs is not None and items:
            call = replace(calls.call(items[0]), id="probe")
            probe = Probe(target, clock, call, pairs)
        try:
            return await _beside(runner, probe, clock.now, self._load.duration_s)
        finally:
            await target.close()


async def _beside(runner: Runner, probe: Probe | None, now: Callable[[], float], duration_s: float) -> RunRecord:
    if probe is None:
        return await runner.run_whole()
    probing = asyncio.create_task(probe.run(now() + duration_s))
    try:
        return await runner.run_whole()
    finally:
        probing.cancel()
        await asyncio.gather(probing, return_exceptions=True)
