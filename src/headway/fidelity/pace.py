"""How fast the machine was while a run lasted: a part of the world, as the arrivals are, that no scheduler decides.

Virtual processors share caches, cores and memory with strangers. Where two of them come to lie on one core for ten
seconds, what computes takes nearly twice as long and what reads the weights hardly longer; so speed has two numbers.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from headway.sim import Fitted
from headway.sim.calibration import Observation

REACH_S = 1.0
"""A step tells of the speed so long before and after its beginning, the less the further away."""

TICK_S = 0.25
"""So often the speed is told anew."""

_FAITH_S = 0.01
_LEAST = 0.1


@dataclass(frozen=True, slots=True)
class _Seen:
    """A step: when it began in the run, and of what the model has for it the whole and the share of reading."""

    moment_s: float
    model_s: float
    share: float
    seconds: float


class Pace:
    """The step times of a model at every moment of a run, from what some of the run's steps took in the executor.

    At every tick the seconds of reading and of computing are stretched by a factor each: those with the least squared
    relative error over the steps within reach. A step's weight falls in a straight line to nothing at `REACH_S`, and
    is proportional to its seconds: a long step is itself a mean over a long time, and what a queue grows by are seconds
    and not steps. As if `_FAITH_S` more of steps had said so, both factors are drawn to the mean. `start_s` is the
    run's beginning on the clock of `steps`; moments are counted from there. A tick without steps in reach is like the
    nearest one at which a step began, of two the earlier. `factors` are those of the ticks at which steps began, in
    order.

    Whatever is wrong with the model for a second comes out as speed: steps that a pace was made of say nothing
    about the model, and others of the same run little.
    """

    def __init__(self, model: Fitted, steps: Sequence[Observation], start_s: float) -> None:
        self._model = model
        self._seen = sorted(
            (
                _Seen(step.start_s - start_s, whole_s, model.reading_s(step.load) / whole_s, step.seconds)
                for step in steps
                if step.start_s >= start_s and (whole_s := model.executor_s(step.load))
            ),
            key=_moment,
        )
        self._ticks = sorted({_tick(step.moment_s) for step in self._seen})
        self._known: dict[int, Fitted] = {}
        self.factors: Sequence[tuple[float, float]] = [
            _factors(self._near(tick), tick * TICK_S) for tick in self._ticks
        ]

    def at(self, moment_s: float) -> Fitted:
        """What steps cost then."""
        tick = _tick(moment_s)
        if tick not in self._known:
            self._known[tick] = self._found(tick)
        return self._known[tick]

    def _found(self, tick: int) -> Fitted:
        if not self._ticks:
            return self._model
        if not self._near(tick):
            tick = min(self._ticks, key=lambda other: (abs(other - tick), other))
        return self._model.at_pace(*_factors(self._near(tick), tick * TICK_S))

    def _near(self, tick: int) -> Sequence[_Seen]:
        """The steps whose weight is not nothing."""
        first = bisect_right(self._seen, tick * TICK_S - REACH_S, key=_moment)
        return self._seen[first : bisect_left(self._seen, tick * TICK_S + REACH_S, key=_moment)]


def halves(steps: Sequence[Observation]) -> tuple[list[Observation], list[Observation]]:
    """Every other step, and the rest: at most half and at least half.

    Steps with prompts and steps without are dealt out apart. They are long, few and what requests wait for; by turns
    over all steps chance gives a second's to one side.
    """
    told: list[Observation] = []
    kept: list[Observation] = []
    for has_prompt in (True, False):
        kind = [step for step in steps if bool(step.load.prefills) is has_prompt]
        told += kind[1::2]
        kept += kind[::2]
    return told, kept


def slowness(model: Fitted, steps: Sequence[Observation]) -> float:
    """The executor's seconds in a run over those of the model."""
    predicted_s = sum(model.executor_s(step.load) for step in steps)
    return sum(step.seconds for step in steps) / predicted_s if predicted_s else 1.0


def _moment(step: _Seen) -> float:
    return step.moment_s


def _tick(moment_s: float) -> int:
    return round(moment_s / TICK_S)


def _factors(steps: Sequence[_Seen], moment_s: float) -> tuple[float, float]:
    """Of reading and of computing, from steps around a moment: two normal equations."""
    rr = rc = cc = read = computed = 0.0
    for step in steps:
        weight = (1.0 - abs(step.moment_s - moment_s) / REACH_S) * step.model_s
        share, rest, ratio = step.share, 1.0 - step.share, step.seconds / step.model_s
        rr += weight * share * share
        rc += weight * share * rest
        cc += weight * rest * rest
        read += weight * share * ratio
        computed += weight * rest * ratio
    mean = (read + computed) / (rr + 2.0 * rc + cc)
    rr, cc = rr + _FAITH_S, cc + _FAITH_S
    read, computed = read + _FAITH_S * mean, computed + _FAITH_S * mean
    size = rr * cc - rc * rc
    return max((read * cc - computed * rc) / size, _LEAST), max((computed * rr - read * rc) / size, _LEAST)
