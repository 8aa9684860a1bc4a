"""What an experiment found: a paper's ratio beside ours, and what to think of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from headway.report import Chart, Grid

CLOSE = 1.25
"""A factor within which a single published figure counts as met."""


Row = Sequence[str | float | None]
"""One row of a table."""


class Verdict(StrEnum):
    """Where our figure lies. `AS_PUBLISHED`: in the paper's range, or within 25 % of its one figure."""

    AS_PUBLISHED = "as published"
    LARGER = "larger"
    SMALLER = "smaller"
    NO_FIGURE = "no published figure"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratio:
    """One figure of a paper and ours. `paper` is the published range, None where the paper has none.

    `plausible` is what a simulation of this kind can reach. `why` says why the figure differs, and is for the reader:
    nothing is computed from it.
    """

    name: str
    ours: float
    paper: tuple[float, float] | None = None
    plausible: tuple[float, float] | None = None
    why: str = ""

    @property
    def verdict(self) -> Verdict:
        """Ours against the paper's range."""
        if self.paper is None:
            return Verdict.NO_FIGURE
        low, high = self.paper
        slack = CLOSE if low == high else 1.0
        if self.ours < low / slack:
            return Verdict.SMALLER
        return Verdict.LARGER if self.ours > high * slack else Verdict.AS_PUBLISHED

    @property
    def is_plausible(self) -> bool:
        """In the range that a simulation can reach, with 25 % to both sides; true where none is known."""
        if self.plausible is None:
            return True
        return self.plausible[0] / CLOSE <= self.ours <= self.plausible[1] * CLOSE


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One paper reproduced. `setup` says what was simulated, `tables` how the ratio depends on assumptions."""

    name: str
    title: str
    source: str
    setup: str
    ratios: Sequence[Ratio]
    chart: Chart
    tables: Sequence[Grid] = ()
    remarks: Sequence[str] = ()

    def ratio_table(self) -> Grid:
        """The paper's figures against ours."""
        rows = [
            (ratio.name, _range(ratio.paper), _range(ratio.plausible), ratio.ours, ratio.verdict.value)
            for ratio in self.ratios
        ]
        columns = ("ratio", "paper", "plausible", "ours", "verdict")
        return Grid(title="", columns=columns, rows=rows)

    def to_json(self) -> Mapping[str, object]:
        """The finding as one document."""
        return {
            "name": self.name,
            "title": self.title,
            "source": self.source,
            "setup": self.setup,
            "ratios": [
                {
                    "name": ratio.name,
                    "paper": ratio.paper,
                    "plausible": ratio.plausible,
                    "ours": ratio.ours,
                    "verdict": ratio.verdict.value,
                    "is_plausible": ratio.is_plausible,
                    "why": ratio.why,
                }
                for ratio in self.ratios
            ],
            "tables": [
                {"title": table.title, "columns": table.columns, "rows": table.rows, "note": table.note}
                for table in self.tables
            ],
            "remarks": self.remarks,
        }


def _range(bounds: tuple[float, float] | None) -> str:
    if bounds is None:
        return "-"
    low, high = bounds
    return f"{low:.4g}" if low == high else f"{low:.4g}–{high:.4g}"
