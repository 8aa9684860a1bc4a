"""All policies on one engine: the same requests, turn by turn, and the middle of several rounds."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

from headway.bench.contest import Base, Contest, Heat, RunLog, Standings, rounds
from headway.bench.inprocess import EngineTarget
from headway.bench.pace import Pacemaker, on_even_time
from headway.bench.progress import Progress
from headway.bench.prompts import CallMaker, IdCalls
from headway.bench.runner import Runner
from headway.bench.score import Score, score, sustained_rate
from headway.engine import Engine, for_comparison, with_policy
from headway.errors import BadSetting
from headway.report import RunRecord

BASELINE = "vllm"


def fit(engine: Engine, contest: Contest) -> tuple[Engine, Contest, Pacemaker | None]:
    """What an `Arena` is made of: time follows the machine's speed, unless the contest has a rate of its own.

    Nor does it on a device that takes several batches at once: how long one takes there is no measure of it.
    Raises `BadSetting` where the pool or a sequence is too small.
    """
    pacemaker = None
    if contest.base_rate is None and engine.core.executor.capacity().in_flight == 1:
        engine, pacemaker = on_even_time(engine)
    return engine, contest.within(engine.limits.max_model_len), pacemaker


class Arena:
    """Runs a contest on one built engine: its model, executor and limits for all, a fresh cache for each run.

    `on_progress` hears of the heat in progress, `on_record` of each finished one. `make_calls` makes a run's prompts
    from its seed, if not of common words. Runs that the `log` holds are not made again.

    Machines change their speed while a long contest lasts. With a `pacemaker` (and the engine that came with it) all
    times, arrivals too, are those of a machine that keeps its usual speed of when the base rate was measured.
    """

    def __init__(
        self,
        engine: Engine,
        contest: Contest,
        *,
        pacemaker: Pacemaker | None = None,
        make_calls: Callable[[int], CallMaker] | None = None,
        on_progress: Callable[[Heat, Progress], None] | None = None,
        on_record: Callable[[Heat, RunRecord, Score], None] | None = None,
        log: RunLog | None = None,
    ) -> None:
        self._engine, self._contest, self._pacemaker = engine, contest, pacemaker
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
            standings.base_rate, standings.follows_speed = base.rate, self._pacemaker is not None
            for number, heat in enumerate(heats):
                await self._hold(replace(heat, number=number + 1, num_heats=len(heats)), base)
        except asyncio.CancelledError:
            return standings
        standings.is_complete = True
        return standings

    async def _base(self) -> Base:
        log, maker = self._log, self._pacemaker
        known = log.base if log is not None else None
        if maker is not None:
            maker.keep(known.glance_s if known else None)
        if known is not None:
            return known
        base = Base(rate=self._contest.base_rate or await self._sustained_rate())
        if maker is not None:
            base = Base(rate=base.rate * maker.settle(), glance_s=maker.usual_s)
        if log is not None:
            log.set_base(base)
        return base

    async def _sustained_rate(self) -> float:
        """What the baseline gets through with all requests at once.

        Raises `BadSetting` where it left some unanswered: what became of those would make all rates too high.
        """
        heat = Heat(policy=BASELINE, factor=float("inf"), repeat=0)
        run = await self._run(heat, heat.factor)
        if num_lost := sum(not record.is_ok for record in run.requests):
            reason = next(record.reason for record in run.requests if not record.is_ok)
            raise BadSetting(
                f"{num_lost} of {len(run.requests)} requests came to nothing while what {BASELINE} sustains was "
                f"measured ({reason}): send fewer, wait longer for them, or name a base rate of your own"
            )
        return sustained_rate(len(run.requests), run.steps)

    async def _hold(self, heat: Heat, base: Base) -> None:
        """One run, unless the log has it."""
        scores = self.standings.scores.setdefault((heat.factor, heat.policy), [])
        if self._log is not None and (known := self._log.find(heat)) is not None:
            scores.append(known)
            self._note_maker(heat)
            return
        speed = self._speed()
        run = await self._run(heat, base.rate * heat.factor)
        figures = score(run, speed())
        scores.append(figures)
        if self._log is not None:
            self._log.add(heat, figures)
        self._note_maker(heat)
        if self._on_record is not None:
            self._on_record(heat, run, figures)

    def _note_maker(self, heat: Heat) -> None:
        if self._log is not None:
            self.standings.makers.setdefault((heat.factor, heat.policy), []).append(self._log.maker(heat))

    def _speed(self) -> Callable[[], float]:
        """What tells, when it is called, the machine's mean speed since now; 1 where nobody looks."""
        if self._pacemaker is None:
            return lambda: 1.0
        clock = self._pacemaker.clock
        begin_s, ran_s = clock.now(), clock.ran_s
        return lambda: (clock.now() - begin_s) / (clock.ran_s - ran_s)

    async def _run(self, heat: Heat, rate: float) -> RunRecord:
        """A heat's run at `rate` requests per second. Raises `CancelledError` where it was interrupted."""
        plan = self._contest.plan(rate, heat.repeat)
        calls = self._make_calls(self._contest.salt(heat.repeat))
        async with EngineTarget(self._under(heat.policy)) as target:
            runner = Runner(
                target,
                calls,
                self._engine.clock,
                replace(plan, label=heat.policy),
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
