"""What tuning came to, as data."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from headway.tune.guards import Guards
from headway.tune.lab import Sample
from headway.tune.slo import SloTable

REAL = "real traffic"
"""The stage that tries settings on the workload as it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """One stage with its evidence: the best run of each setting that was tried."""

    name: str
    text: str
    samples: Sequence[Sample]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The chosen setting with all evidence. `samples` are all runs; `rate` is the workload's own, requests a second.

    One that is not complete was interrupted: its setting is the best that had been tried.
    """

    stages: Sequence[Stage]
    chosen: Sample
    guards: Guards
    live: Sequence[Sample]
    beyond: Sequence[Sample]
    samples: Sequence[Sample]
    rate: float
    slo: SloTable
    is_complete: bool = True

    @property
    def verified(self) -> Sample | None:
        """The live run of the chosen setting."""
        return next((one for one in self.live if one.setting == self.chosen.setting), None)

    @property
    def is_kept(self) -> bool:
        """Whether the promises hold: live where that was tried, else in virtual time."""
        return self.verified.keeps if self.verified is not None else self.chosen.keeps

    @property
    def frontier(self) -> list[Sample]:
        """Of the virtual runs of the real traffic, those that no other one beats in throughput and gaps."""
        runs = sorted(self.real, key=lambda one: (-one.output_rate, one.itl_p99_ms))
        found: list[Sample] = []
        for one in runs:
            if not found or one.itl_p99_ms < found[-1].itl_p99_ms:
                found.append(one)
        return found

    @property
    def real(self) -> list[Sample]:
        """The virtual runs of the real traffic."""
        return [one for one in self.samples if one.stage in (REAL, "beyond")]

    def breaks_first(self) -> str:
        """What gives way first beyond the chosen rate."""
        for one in self.beyond:
            if one.broken:
                key, times = one.broken[0], one.factor / self.chosen.factor
                return (
                    f"{key}: at {times:.3g} times the rate it is {_shown(one.values[key])}, "
                    f"limit {self.slo.limits[key]:g}"
                )
        if self.chosen.is_burst and self.chosen.keeps:
            return (
                "unknown: at that rate all requests of the run come at once; give more (--num-requests, --max-requests)"
            )
        if not self.is_complete:
            return "not tried: the search was interrupted"
        if not self.beyond:
            return "not tried: clients that wait for their answers set their own rate"
        return f"nothing, up to {self.beyond[-1].factor / self.chosen.factor:.3g} times the rate"


def as_document(outcome: Outcome) -> dict[str, object]:
    """Everything, ready for JSON."""
    verified = outcome.verified
    return {
        "kept": outcome.is_kept,
        "complete": outcome.is_complete,
        "workload_rate": outcome.rate if math.isfinite(outcome.rate) else None,
        "slo": dict(outcome.slo.limits),
        "chosen": _plain(outcome.chosen),
        "verified": _plain(verified) if verified is not None else None,
        "guards": asdict(outcome.guards),
        "stages": [
            {"name": stage.name, "text": stage.text, "runs": [_plain(one) for one in stage.samples]}
            for stage in outcome.stages
        ],
        "beyond": [_plain(one) for one in outcome.beyond],
        "breaks_first": outcome.breaks_first(),
        "frontier": [_plain(one) for one in outcome.frontier],
        "num_runs": len(outcome.samples),
    }


def _plain(sample: Sample) -> dict[str, object]:
    values = {key: value if math.isfinite(value) else None for key, value in sample.values.items()}
    return {**asdict(sample), "setting": sample.setting.fields(), "values": values, "kept": sample.keeps}


def _shown(value: float) -> str:
    return f"{value:.4g}" if math.isfinite(value) else "beyond all bounds: nobody was answered"
