"""All policies on one engine: the same requests, turn by turn, and the middle of several rounds."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

from headway.bench.contest import Contest, Heat, RunLog, Standings, rounds
from headway.bench.inprocess import EngineTarget
from headway.bench.plan import RunPlan
from headway.bench.progress import Progress
from headway.bench.prompts import CallMaker, IdCalls
from headway.bench.runner import Runner
from headway.bench.score import Score, score, sustained_rate
from headway.engine import Engine, for_comparison, with_policy
from headway.errors import BadSetting
from headway.report import RunRecord

BASELINE = "vllm"


class Arena:
    """Runs a contest on one built engine: its model, executor and limits for all, a fresh cache for each run.

    `on_progress` hears of the heat in progress, `on_record` of each finished one. `make_calls` makes a run's prompts
    from its seed, if not of common words. Runs that the `log` holds are not made again.
    """

    def __init__(
        self,
        engine: Engine,
        contest: Contest,
        *,
        make_calls: Callable[[int], CallMaker] | None = None,
        on_progress: Callable[[Heat, Progress], None] | None = None,
        on_record: Callable[[Heat, RunRecord, Score], None] | None = None,
        log: RunLog | None = None,
    ) -> None:
        self._engine, self._contest = engine, contest
        self._make_calls = make_calls or (lambda salt: IdCalls.made_up(engine.tokenizer, salt))
        self._on_progress, self._on_record = on_progress, on_record
        self._log = log
        self.standings = Standings()

    async def run(self) -> Standings:
        """The standings when all heats are over, or when the task was cancelled. Raises `BadSetting`."""
        contest, standings = self._contest, self.standings
        entrants = [policy for policy in contest.policies if self._can_run(policy)]
        heats = list(rounds(entrants, contest.factors, contest.repeats))
        try:
            standings.base_rate = contest.base_rate or await self._base_rate()
            for number, heat in enumerate(heats):
                await self._hold(replace(heat, number=number + 1, num_heats=len(heats)))
        except asyncio.CancelledError:
            return standings
        standings.is_complete = True
        return standings

    async def _base_rate(self) -> float:
        if self._log is None:
            return await self._measure_base()
        if self._log.base_rate is None:
            self._log.set_base(await self._measure_base())
        assert self._log.base_rate is not None, "it was set"
        return self._log.base_rate

    async def _measure_base(self) -> float:
        """What `vllm` sustains: all requests at once."""
        heat = Heat(policy=BASELINE, factor=float("inf"), repeat=0)
        run = await self._run(heat, float("inf"))
        if not run.is_complete:
            raise asyncio.CancelledError
        return sustained_rate(len(run.requests), run.steps)

    async def _hold(self, heat: Heat) -> None:
        scores = self.standings.scores.setdefault((heat.factor, heat.policy), [])
        if self._log is not None and (known := self._log.find(heat)) is not None:
            scores.append(known)
            return
        run = await self._run(heat, self.standings.base_rate * heat.factor)
        if not run.is_complete:
            raise asyncio.CancelledError
        figures = score(run)
        scores.append(figures)
        if self._log is not None:
            self._log.add(heat, figures)
        if self._on_record is not None:
            self._on_record(heat, run, figures)

    async def _run(self, heat: Heat, rate: float) -> RunRecord:
        contest = self._contest
        workload = contest.load.workload(rate, heat.repeat)
        plan = RunPlan.of(workload, label=heat.policy, timeout_s=contest.timeout_s)
        calls = self._make_calls(workload.seed)
        async with EngineTarget(self._under(heat.policy)) as target:
            runner = Runner(
                target, calls, self._engine.clock, plan, on_progress=lambda progress: self._show(heat, progress)
            )
            return await runner.run()

    def _under(self, policy: str) -> Engine:
        settings = self._contest.settings.get(policy, {})
        config = replace(self._engine.config, policy=policy, policy_settings=settings)
        return with_policy(self._engine, for_comparison(config))

    def _can_run(self, policy: str) -> bool:
        """Whether the policy works under the engine's limits; why not is kept."""
        try:
            engine = self._under(policy)
        except BadSetting as error:
            self.standings.skipped[policy] = str(error)
            return False
        if engine.limits.max_model_len < self._contest.load.context:
            self.standings.skipped[policy] = (
                f"it can hold {engine.limits.max_model_len} tokens of one sequence; the workload needs up to "
                f"{self._contest.load.context}"
            )
            return False
        return True

    def _show(self, heat: Heat, progress: Progress) -> None:
        if self._on_progress is not None:
            self._on_progress(heat, progress)
