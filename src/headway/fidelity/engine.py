"""This machine's engine, live, against the same requests in virtual time."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from headway.bench import Progress
from headway.bench.mixed import MixedLoad
from headway.bench.score import sustained_rate
from headway.engine import Engine, with_policy
from headway.errors import BadSetting
from headway.fidelity.live import LiveRun, run_live
from headway.fidelity.outcome import Deviation
from headway.fidelity.pace import Pace, halves, slowness
from headway.report import RunRecord, summarize
from headway.sim import Calibration, Plan, Pool, calibrated_plant, simulate

LEVELS = (50.0, 95.0)
PLAUSIBLE = (0.7, 1.5)
"""Speeds that a machine comes to have: where it is found beyond them, the model may as well be wrong."""

POLICIES = ("vllm", "sarathi_serve", "headway")


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineTrial:
    """What is run: `load` of what each policy sustains here, `repeats` times with other requests each time."""

    requests: MixedLoad
    policies: Sequence[str] = POLICIES
    repeats: int = 3
    load: float = 0.4
    latency_bound: float = 0.15
    throughput_bound: float = 0.05

    def __post_init__(self) -> None:
        """Raise `BadSetting` for a load at which queues say nothing."""
        if not 0.05 <= self.load <= 0.85:
            raise BadSetting(f"load is {self.load:g}; it must be between 0.05 and 0.85: beyond, queues are chance")


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyCheck:
    """One policy: its rate, its figures (the median of the runs), and the decisions that replay made otherwise.

    `rows` are simulated at the speed that half of the live run's steps show, moment by moment: all that a
    simulation takes from the run beside it. `unpaced` are the same figures at the calibration's speed throughout, and
    alone depend on its step times. `slowness` is what the executor took in the live runs relative to the calibration,
    `reading` and `computing` the medians of what the two were stretched by. Steps that the speed was not taken from,
    the engine's own time included, relative to what is then predicted have `step_median` and `step_mean`.
    """

    policy: str
    rate: float
    rows: Sequence[Deviation]
    unpaced: Sequence[Deviation]
    num_runs: int
    num_steps: int
    num_differences: int
    slowness: float
    reading: float
    computing: float
    step_median: float
    step_mean: float

    @property
    def is_plausible(self) -> bool:
        """Whether the speed that was found can be that of the machine the calibration was made on."""
        return all(PLAUSIBLE[0] <= factor <= PLAUSIBLE[1] for factor in (self.reading, self.computing))


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineCheck:
    """All policies, and the bounds. Interrupted, it is not complete: the runs that ended."""

    checks: Sequence[PolicyCheck]
    trial: EngineTrial
    is_complete: bool = True

    @property
    def is_within(self) -> bool:
        """Whether every figure keeps its bound, and every decision was made again.

        At the speeds of the live runs: a wrong model may pass, which `PolicyCheck.is_plausible` and `unpaced` show.
        """
        return self.is_complete and all(
            not check.num_differences and all(abs(row.error) <= self.bound(row) for row in check.rows)
            for check in self.checks
        )

    def bound(self, row: Deviation) -> float:
        """The bound on a figure."""
        return self.trial.throughput_bound if row.metric == "throughput" else self.trial.latency_bound


OnHeat = Callable[[str, Progress], None]
"""Called with what runs and how it goes."""


def check_engine(engine: Engine, calibration: Calibration, trial: EngineTrial, *, on_progress: OnHeat) -> EngineCheck:
    """Run all policies live and simulated and compare TTFT, ITL and throughput. Raises `BadSetting`.

    The engine must be idle; its executor stays open. Ctrl-C ends the check with the runs that ended before; without
    one, it goes on to the caller.
    """
    done: dict[str, tuple[float, list[_Pair]]] = {}
    is_complete = False
    try:
        for policy in trial.policies:
            entrant = with_policy(engine, replace(engine.config, policy=policy, policy_settings={}))
            rate = trial.load * _sustained(trial, _pool(entrant, calibration))
            done[policy] = rate, []
            for repeat in range(trial.repeats):
                pair = _pair(entrant, calibration, trial.requests, (rate, repeat), on_progress)
                done[policy][1].append(pair)
        is_complete = True
    except KeyboardInterrupt:
        if not any(pairs for _, pairs in done.values()):
            raise
    checks = [_compare(policy, rate, pairs) for policy, (rate, pairs) in done.items() if pairs]
    return EngineCheck(checks=checks, trial=trial, is_complete=is_complete)


@dataclass(frozen=True, slots=True)
class _Pair:
    live: LiveRun
    virtual: RunRecord
    unpaced: RunRecord
    slowness: float
    factors: Sequence[tuple[float, float]]
    ratios: Sequence[float]

    @property
    def num_differences(self) -> int:
        """Steps that were decided otherwise, and a decision log that says why nothing more could be compared."""
        replayed = self.live.replayed
        return len({difference.step for difference in replayed.differences}) + bool(replayed.note)


def _pair(
    entrant: Engine, calibration: Calibration, requests: MixedLoad, heat: tuple[float, int], on_progress: OnHeat
) -> _Pair:
    """A live run and simulated ones of the same requests; `heat` is the rate and the number of the repeat."""
    workload = requests.workload(*heat)
    name = f"{entrant.config.policy} {heat[1] + 1}"
    fresh = with_policy(entrant, entrant.config)
    live = run_live(fresh, workload, lambda progress: on_progress(name, progress))
    told, kept = halves(live.steps)
    pace = Pace(calibration.model, told, live.start_s)
    unpaced = _pool(entrant, calibration)
    paced = replace(unpaced, plant=replace(unpaced.plant, cost_at=pace.at))
    ratios = [
        (step.seconds + (step.host_s or 0.0)) / predicted_s
        for step in kept
        if step.start_s >= live.start_s
        and (predicted_s := pace.at(step.start_s - live.start_s).predict(step.load)) > 0.0
    ]
    return _Pair(
        live=live,
        virtual=simulate(workload.items(), paced),
        unpaced=simulate(workload.items(), unpaced),
        slowness=slowness(calibration.model, live.steps),
        factors=pace.factors,
        ratios=ratios,
    )


def _pool(engine: Engine, calibration: Calibration) -> Pool:
    config, limits = engine.config, engine.limits
    plant = calibrated_plant(
        calibration,
        num_blocks=limits.num_blocks,
        block_size=limits.block_size,
        num_host_blocks=limits.num_host_blocks,
        prefix_cache=config.prefix_cache,
        context=limits.max_model_len,
    )
    plan = Plan(policy=config.policy, settings=config.policy_settings, defaults=config.policy_defaults())
    return Pool(plant=plant, plan=plan)


def _sustained(trial: EngineTrial, pool: Pool) -> float:
    """Requests per second with all of them at once, in virtual time."""
    record = simulate(trial.requests.workload(float("inf"), 0).items(), pool)
    return sustained_rate(len(record.requests), record.steps)


def _compare(policy: str, rate: float, pairs: Sequence[_Pair]) -> PolicyCheck:
    live = [_figures(pair.live.record) for pair in pairs]
    ratios = [ratio for pair in pairs for ratio in pair.ratios] or [float("nan")]
    factors = [found for pair in pairs for found in pair.factors] or [(1.0, 1.0)]
    return PolicyCheck(
        policy=policy,
        rate=rate,
        rows=_medians(live, [_figures(pair.virtual) for pair in pairs]),
        unpaced=_medians(live, [_figures(pair.unpaced) for pair in pairs]),
        num_runs=len(pairs),
        num_steps=sum(pair.live.replayed.num_steps for pair in pairs),
        num_differences=sum(pair.num_differences for pair in pairs),
        slowness=statistics.median(pair.slowness for pair in pairs),
        reading=statistics.median(reading for reading, _ in factors),
        computing=statistics.median(computing for _, computing in factors),
        step_median=statistics.median(ratios),
        step_mean=statistics.fmean(ratios),
    )


Figures = dict[tuple[str, str], tuple[float, int]]
"""Value and sample size by metric and figure."""


def _medians(live: Sequence[Figures], virtual: Sequence[Figures]) -> list[Deviation]:
    """Each figure's median over the runs, on both sides."""
    return [
        Deviation(
            metric=metric,
            figure=figure,
            size=live[-1][metric, figure][1],
            measured=statistics.median(run[metric, figure][0] for run in live),
            simulated=statistics.median(run[metric, figure][0] for run in virtual),
        )
        for metric, figure in live[0]
    ]


def _figures(run: RunRecord) -> Figures:
    """All figures of a run. Raises `BadSetting` for one without answers."""
    whole = [record for record in run.requests if record.is_ok]
    if not whole:
        raise BadSetting("not one request was answered; nothing can be compared")
    ttft = summarize((record.ttft_s for record in whole if record.ttft_s is not None), LEVELS)
    itl = summarize((gap_s for record in whole for gap_s in record.itl_s), LEVELS)
    end_s = max(record.last_s or 0.0 for record in whole)
    rate = sum(record.num_output for record in whole) / end_s
    found = {
        (name, f"P{level:g}"): (sample.at(level), sample.size)
        for name, sample in (("TTFT", ttft), ("ITL", itl))
        for level in LEVELS
    }
    return {**found, ("throughput", "tokens/s"): (rate, len(whole))}
