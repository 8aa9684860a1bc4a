"""Settings tried on this machine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from headway.bench import CallMaker, EngineTarget, Progress, Runner, RunPlan
from headway.engine import Engine, with_policy
from headway.interruptible import run_interruptible
from headway.tune.guards import Guards
from headway.tune.lab import Sample, judge
from headway.tune.slo import SloTable
from headway.tune.traffic import Traffic


class LiveRuns:
    """Runs settings on one built engine, each with an empty cache. The engine must be idle; it stays open."""

    def __init__(
        self,
        engine: Engine,
        traffic: Traffic,
        slo: SloTable,
        *,
        calls: CallMaker,
        on_progress: Callable[[str, Progress], None],
    ) -> None:
        self._engine, self._traffic, self._slo = engine, traffic, slo
        self._calls, self._on_progress = calls, on_progress

    def __call__(self, sample: Sample, guards: Guards) -> Sample:
        """The sample's setting at its factor, behind the guards. Half a run would mislead: interrupted, it raises."""
        return run_interruptible(self._run(sample, guards))

    async def _run(self, sample: Sample, guards: Guards) -> Sample:
        setting, items = sample.setting, self._traffic.at(sample.factor).items
        config = replace(
            self._engine.config,
            policy=setting.policy,
            policy_settings={},
            max_num_seqs=setting.max_num_seqs,
            max_num_batched_tokens=setting.max_num_batched_tokens,
            long_prefill_token_threshold=setting.chunk,
            itl_target_ms=setting.itl_ms,
            kv_cache_utilization_limit=setting.kv_limit,
        )
        plan = RunPlan(
            items=lambda: items,
            num_total=len(items),
            is_closed_loop=not self._traffic.scales,
            weights=self._traffic.weights,
        )
        async with EngineTarget(with_policy(self._engine, config), guards.guarding()) as target:
            runner = Runner(
                target,
                self._calls,
                self._engine.clock,
                plan,
                on_progress=lambda progress: self._on_progress(setting.label(), progress),
            )
            run = await runner.run_whole()
        return judge("live", setting, sample.factor, run, self._slo)
