"""All policies on one engine: the same requests, turn by turn, and the middle of several rounds."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

from headway.bench.contest import Base, Contest, Heat, RunLog, Standings, rounds
from headway.bench.inprocess import EngineTarget
from headway.bench.plan import RunPlan
from headway.bench.progress import Progress
from headway.bench.prompts import CallMaker, IdCalls
from headway.bench.runner import Runner
from headway.bench.score import Score, busy_s, score, sustained_rate
from headway.engine import Engine, for_comparison, with_policy
from headway.errors import BadSetting
from headway.report import RunRecord

BASELINE = "vllm"


class Arena:
    """Runs a contest on one built engine: its model, executor and limits for all, a fresh cache for each run.

    `on_progress` hears of the heat in progress, `on_record` of each finished one. `make_calls` makes a run's prompts
    from its seed, if not of common words. Runs that the `log` holds are not made again.

    Machines change their speed while a long contest lasts: before and after each run the same small work is timed. The
    base rate is measured at the speed of its time, so arrivals follow the speed that is found.
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
            base = await self._base()
            standings.base_rate, standings.follows_speed = base.rate, contest.base_rate is None
            for number, heat in enumerate(heats):
                await self._hold(replace(heat, number=number + 1, num_heats=len(heats)), base)
        except asyncio.CancelledError:
            return standings
        standings.is_complete = True
        return standings

    async def _base(self) -> Base:
        log = self._log
        if log is not None and log.base is not None:
            return log.base
        first = Heat(policy=BASELINE, factor=float("inf"), repeat=0)
        before_s = await self._yardstick_s(first)
        rate = self._contest.base_rate or await self._sustained_rate(first)
        base = Base(rate=rate, yardstick_s=(before_s + await self._yardstick_s(first)) / 2)
        if log is not None:
            log.set_base(base)
        return base

    async def _sustained_rate(self, heat: Heat) -> float:
        """What the baseline gets through with all requests at once."""
        run = await self._run(heat, BASELINE, self._contest.plan(float("inf"), heat.repeat))
        return sustained_rate(len(run.requests), run.steps)

    async def _yardstick_s(self, heat: Heat) -> float:
        """How long the machine takes now, before or after a heat, for what is always the same."""
        return busy_s((await self._run(heat, BASELINE, self._contest.yardstick())).steps)

    async def _hold(self, heat: Heat, base: Base) -> None:
        """One run, at the load that its factor means for the machine as it is now."""
        contest = self._contest
        scores = self.standings.scores.setdefault((heat.factor, heat.policy), [])
        if self._log is not None and (known := self._log.find(heat)) is not None:
            scores.append(known)
            return
        before_s = await self._yardstick_s(heat)
        speed = base.yardstick_s / before_s if self.standings.follows_speed else 1.0
        run = await self._run(heat, heat.policy, contest.plan(base.rate * heat.factor * speed, heat.repeat))
        figures = score(run, base.yardstick_s * 2 / (before_s + await self._yardstick_s(heat)))
        scores.append(figures)
        if self._log is not None:
            self._log.add(heat, figures)
        if self._on_record is not None:
            self._on_record(heat, run, figures)

    async def _run(self, heat: Heat, policy: str, plan: RunPlan) -> RunRecord:
        """A run as part of a heat. Raises `CancelledError` where it was interrupted."""
        calls = self._make_calls(self._contest.salt(heat.repeat))
        async with EngineTarget(self._under(policy)) as target:
            runner = Runner(
                target,
                calls,
                self._engine.clock,
                replace(plan, label=policy),
                on_progress=lambda progress: self._show(heat, progress),
            )
            run = await runner.run()
        if not run.is_complete:
            raise asyncio.CancelledError
        return run

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
