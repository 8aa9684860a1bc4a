"""Deployments by the rate at which most requests meet two limits: what DistServe calls goodput."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from headway.experiments.demand import LogNormal
from headway.experiments.probing import RateCurve, answered
from headway.report import RunRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """What users want from a model, with the paper's limits in seconds, and its gain in rate over vLLM."""

    name: str
    model: str
    tensor: int
    prompt: LogNormal
    output: LogNormal
    ttft_s: float
    tpot_s: float
    num: int
    gain: tuple[float, float]
    plausible: tuple[float, float] | None = None


Times = list[tuple[float, float]]
"""TTFT and TPOT of each request."""


class Measured:
    """A deployment's times by request rate; every rate is run once, whatever limits are asked about."""

    def __init__(self, task: Task, name: str, serve: Callable[[float], RunRecord]) -> None:
        self._task = task
        self._name = name
        self._serve = serve
        self._times: dict[float, Times] = {}

    def curve(self, scale: float = 1.0) -> RateCurve:
        """The share of requests that miss a limit, both limits multiplied by `scale`."""
        task = self._task

        def missed(rate: float) -> float:
            times = self.at(rate)
            kept = sum(ttft <= scale * task.ttft_s and tpot <= scale * task.tpot_s for ttft, tpot in times)
            return 1.0 - kept / len(times)

        return RateCurve(self._name, missed)

    @property
    def rates(self) -> list[float]:
        """What was run."""
        return sorted(self._times)

    def at(self, rate: float) -> Times:
        """Times of all requests at a rate."""
        if rate not in self._times:
            requests = answered(self._serve(rate))
            self._times[rate] = [(one.ttft_s or 0.0, one.tpot_s or 0.0) for one in requests]
        return self._times[rate]
