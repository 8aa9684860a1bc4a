"""Two samples of one metric, measured and simulated, side by side."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from headway.report import summarize


@dataclass(frozen=True, slots=True, kw_only=True)
class Deviation:
    """One figure of one metric, in seconds, and how far the simulated value is off, relative to the measured one."""

    metric: str
    figure: str
    size: int
    measured: float
    simulated: float

    @property
    def error(self) -> float:
        """Simulated ÷ measured − 1."""
        return self.simulated / self.measured - 1.0


def deviations(
    metric: str, measured: Iterable[float], simulated: Iterable[float], levels: Sequence[float]
) -> list[Deviation]:
    """The mean and the percentiles `levels` of both samples."""
    real, ours = summarize(measured, levels), summarize(simulated, levels)
    figures = [("mean", real.mean, ours.mean), *((f"P{level:g}", real.at(level), ours.at(level)) for level in levels)]
    return [
        Deviation(metric=metric, figure=figure, size=real.size, measured=theirs, simulated=own)
        for figure, theirs, own in figures
    ]
