"""How a run is going, for whoever draws it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from headway.report import Outcome, RequestRecord

RECENT = 100
"""Requests that the running figures look back on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """A snapshot. `num_total` is None for an endless workload; latencies are medians of the last requests.

    `num_output` are tokens, those of answers under way with them.
    """

    elapsed_s: float
    num_total: int | None
    num_sent: int
    num_in_flight: int
    ended: dict[Outcome, int]
    num_output: int
    ttft_s: float | None = None
    tpot_s: float | None = None

    @property
    def num_done(self) -> int:
        """Requests that have ended in any way."""
        return sum(self.ended.values())


OnProgress = Callable[[Progress], None]


@dataclass(slots=True)
class ProgressBook:
    """Counts as a run goes on."""

    num_total: int | None = None
    num_sent: int = 0
    ended: dict[Outcome, int] = field(default_factory=lambda: dict.fromkeys(Outcome, 0))
    num_output: int = 0
    _recent: deque[RequestRecord] = field(default_factory=lambda: deque(maxlen=RECENT))

    def add(self, record: RequestRecord) -> None:
        """Count one more request that has ended."""
        self.ended[record.outcome] += 1
        self.num_output += record.num_output
        if record.is_ok:
            self._recent.append(record)

    def snapshot(self, elapsed_s: float, num_coming: int = 0) -> Progress:
        """The state now; `num_coming` tokens of answers under way count, too."""
        return Progress(
            elapsed_s=elapsed_s,
            num_total=self.num_total,
            num_sent=self.num_sent,
            num_in_flight=self.num_sent - sum(self.ended.values()),
            ended=dict(self.ended),
            num_output=self.num_output + num_coming,
            ttft_s=_median([record.ttft_s for record in self._recent if record.ttft_s is not None]),
            tpot_s=_median([record.tpot_s for record in self._recent if record.tpot_s is not None]),
        )


def _median(values: list[float]) -> float | None:
    return sorted(values)[len(values) // 2] if values else None
