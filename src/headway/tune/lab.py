"""Settings tried in calibrated virtual time."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from headway.report import RunRecord, summarize
from headway.sim import Plant, Pool, simulate
from headway.tune.setting import Setting
from headway.tune.slo import SloTable
from headway.tune.traffic import Traffic

_MOST_STRIDES = 9
_FIRST_STRIDE, _LONGEST_STRIDE = 1.25, 2.5
_CLOSE = 1.06
_BURST = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One run: what was run, what came of it, and which promises it broke, the worst first.

    `factor` is the rate as a multiple of the workload's own; `output_rate` is in tokens per second, `longest_queue` the
    most sequences that waited. `is_burst`: its requests came in the first twentieth of the time that they took, so that
    a higher rate would make no difference: there are too few of them to tell more.
    """

    stage: str
    setting: Setting
    factor: float
    output_rate: float
    itl_p99_ms: float
    values: Mapping[str, float]
    broken: tuple[str, ...]
    longest_queue: int = 0
    is_live: bool = False
    is_burst: bool = False

    @property
    def keeps(self) -> bool:
        """Whether all promises were kept."""
        return not self.broken


class Lab:
    """Runs traffic in virtual time on one plant, and remembers every run."""

    def __init__(self, plant: Plant, slo: SloTable) -> None:
        self.plant, self.slo = plant, slo
        self.samples: list[Sample] = []

    def sample(self, stage: str, setting: Setting, traffic: Traffic, factor: float = 1.0) -> Sample:
        """One run of the traffic, `factor` times as fast."""
        scaled = traffic.at(factor)
        run = simulate(scaled.items, Pool(plant=self.plant, plan=setting.plan()), weights=scaled.weights)
        last_s = max((item.at_s or 0.0 for item in scaled.items), default=0.0)
        is_burst = scaled.scales and last_s < _BURST * run.duration_s
        made = replace(judge(stage, setting, factor, run, self.slo), is_burst=is_burst)
        self.samples.append(made)
        return made

    def best_rate(self, stage: str, setting: Setting, traffic: Traffic, guess: float = 1.0) -> Sample:
        """The fastest run that keeps all promises, within 6 %: longer and longer strides from a guess, then bisection.

        Where none keeps them, the slowest that was tried; where they are kept by a burst, that one. A closed loop has
        one rate.
        """
        if not traffic.scales:
            return self.sample(stage, setting, traffic)
        made = self.sample(stage, setting, traffic, guess)
        best, worst = (made, None) if made.keeps else (None, made)
        stride = _FIRST_STRIDE
        for _ in range(_MOST_STRIDES):
            if best is not None and (worst is not None or best.is_burst):
                break
            made = self.sample(stage, setting, traffic, made.factor * (stride if best is not None else 1.0 / stride))
            best, worst = (made, worst) if made.keeps else (best, made)
            stride = min(stride * stride, _LONGEST_STRIDE)
        if best is None or worst is None:
            return made if best is None else best
        while worst.factor > _CLOSE * best.factor:
            made = self.sample(stage, setting, traffic, math.sqrt(best.factor * worst.factor))
            best, worst = (made, worst) if made.keeps else (best, made)
        return best


def judge(stage: str, setting: Setting, factor: float, run: RunRecord, slo: SloTable) -> Sample:
    """A run as a sample."""
    last_s = max((record.last_s or 0.0 for record in run.requests), default=0.0)
    num_output = sum(record.num_output for record in run.requests)
    itl = summarize((gap_s for record in run.requests for gap_s in record.itl_s), (99.0,))
    values = slo.values(run)
    return Sample(
        stage=stage,
        setting=setting,
        factor=factor,
        output_rate=num_output / last_s if last_s else 0.0,
        itl_p99_ms=itl.at(99.0) * 1e3 if itl.size else 0.0,
        values=values,
        broken=tuple(slo.broken(values)),
        longest_queue=max((step.num_waiting for step in run.steps), default=0),
        is_live=not run.is_virtual,
    )


def ranked(samples: Iterable[Sample]) -> list[Sample]:
    """The best first: promises kept, the rate, throughput, the gaps' tail, all to within 5 %; then room for more."""
    return sorted(
        samples,
        key=lambda one: (
            not one.keeps,
            -_coarse(one.factor),
            -_coarse(one.output_rate),
            _coarse(one.itl_p99_ms),
            -one.setting.max_num_seqs,
        ),
    )


def unlike_first(samples: Iterable[Sample]) -> list[Sample]:
    """In the same order, but whose run came out exactly like an earlier one's goes behind all others that keep as much.

    Two settings of which no request felt a difference are one as far as this traffic can tell: only where room is left
    is it worth a live run to try both. None of them goes behind one that breaks a promise.
    """
    first: dict[tuple[object, ...], Sample] = {}
    rest = []
    for one in samples:
        felt = (one.factor, one.output_rate, one.itl_p99_ms, *sorted(one.values.items()))
        if first.setdefault(felt, one) is not one:
            rest.append(one)
    return sorted([*first.values(), *rest], key=lambda one: not one.keeps)


def _coarse(value: float) -> int:
    return round(math.log(max(value, 1e-9)) / 0.05)
