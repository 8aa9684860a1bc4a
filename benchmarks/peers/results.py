"""Runs in a file, one JSON document a line, so that a comparison can be made in parts; ratios are read from it."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from headway.report import Spread, over_repeats


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """Figures of one system at one piece of work. Runs of one round were made one after the other."""

    work: str
    system: str
    round: str
    figures: dict[str, float]


def add(path: Path, run: Run) -> None:
    """Append a run."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(asdict(run)) + "\n")


def read(path: Path) -> list[Run]:
    """All runs of a file; none where there is no file."""
    if not path.exists():
        return []
    return [Run(**json.loads(line)) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]


class Results:
    """Runs by work, system and round."""

    def __init__(self, runs: list[Run]) -> None:
        self._found: dict[tuple[str, str], dict[str, dict[str, float]]] = defaultdict(dict)
        for run in runs:
            self._found[run.work, run.system][run.round] = run.figures

    def values(self, work: str, system: str, figure: str) -> list[float]:
        """A figure of every round."""
        return [found[figure] for found in self._found.get((work, system), {}).values() if figure in found]

    def spread(self, work: str, system: str, figure: str) -> Spread | None:
        """Median, smallest and largest over rounds; None where it was never measured."""
        values = self.values(work, system, figure)
        return over_repeats(values) if values else None

    def ratio(self, work: str, ours: str, peer: str, figure: str) -> Spread | None:
        """Ours ÷ the peer's of the same round; None where no round has both."""
        ratios = list(self._ratios(work, ours, peer, figure))
        return over_repeats(ratios) if ratios else None

    def _ratios(self, work: str, ours: str, peer: str, figure: str) -> Iterator[float]:
        theirs = self._found.get((work, peer), {})
        for name, found in self._found.get((work, ours), {}).items():
            if name in theirs and figure in found and theirs[name].get(figure):
                yield found[figure] / theirs[name][figure]
