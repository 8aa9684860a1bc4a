"""How fast the machine was while a run lasted: a part of the world, as the arrivals are, that no scheduler decides.

Virtual processors share caches, cores and memory with strangers. Where two of them come to lie on one core for ten
seconds, what computes takes nearly twice as long and what reads the weights hardly longer; so speed has two numbers.
"""

from __future__ import annotations

from collections.abc import Sequence

from headway.sim import Fitted
from headway.sim.calibration import Observation

WINDOW_S = 2.0
"""Over so long both numbers are taken as constant: dozens of steps, and less than what a neighbour stays for."""

_FAITH = 1.0
_LEAST = 0.1


class Pace:
    """The step times of a model at every moment of a run, from what some of the run's steps took in the executor.

    In each window the seconds of reading and of computing are stretched by a factor each, those with the least squared
    relative error over its steps; as if one step more had said that both are the window's mean. `start_s` is the run's
    beginning on the clock of `steps`; moments are counted from there. A window without steps is like the nearest one
    with some, of two the earlier. `factors` are those of the windows with steps, in order.

    Whatever is wrong with the model for two seconds comes out as speed: steps that a pace was made of say nothing
    about the model, and others of the same run little.
    """

    def __init__(self, model: Fitted, steps: Sequence[Observation], start_s: float) -> None:
        windows: dict[int, list[Observation]] = {}
        for step in steps:
            if step.start_s >= start_s:
                windows.setdefault(int((step.start_s - start_s) / WINDOW_S), []).append(step)
        found = {number: _factors(model, own) for number, own in sorted(windows.items())}
        self.factors: Sequence[tuple[float, float]] = list(found.values())
        self._measured = {number: model.at_pace(*factors) for number, factors in found.items()}
        self._known = dict(self._measured)
        self._constant = model

    def at(self, moment_s: float) -> Fitted:
        """What steps cost then."""
        number = int(moment_s / WINDOW_S)
        if number not in self._known:
            nearest = min(self._measured, key=lambda window: (abs(window - number), window), default=None)
            self._known[number] = self._constant if nearest is None else self._measured[nearest]
        return self._known[number]


def slowness(model: Fitted, steps: Sequence[Observation]) -> float:
    """The executor's seconds in a run over those of the model."""
    predicted_s = sum(model.executor_s(step.load) for step in steps)
    return sum(step.seconds for step in steps) / predicted_s if predicted_s else 1.0


def _factors(model: Fitted, steps: Sequence[Observation]) -> tuple[float, float]:
    """Of reading and of computing; steps that the model has for nothing count for nothing."""
    told = [step for step in steps if model.executor_s(step.load)]
    mean = slowness(model, told)
    rr = rc = cc = 0.0
    read, computed = _FAITH * mean, _FAITH * mean
    for step in told:
        whole_s = model.executor_s(step.load)
        share = model.reading_s(step.load) / whole_s
        ratio = step.seconds / whole_s
        rr += share * share
        rc += share * (1.0 - share)
        cc += (1.0 - share) * (1.0 - share)
        read += share * ratio
        computed += (1.0 - share) * ratio
    rr, cc = rr + _FAITH, cc + _FAITH
    size = rr * cc - rc * rc
    return max((read * cc - computed * rc) / size, _LEAST), max((computed * rr - read * rc) / size, _LEAST)
