"""How much of an experiment is run: all of it for the document, a small part to see that it runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from headway.errors import BadSetting
from headway.experiments.probing import THOROUGH, Search


def _nobody(_part: str) -> None:
    """Progress that nobody follows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """A `share` of an experiment's requests, drawn from `seed`; `tell` hears of each part before it is run."""

    share: float = 1.0
    seed: int = 1
    tell: Callable[[str], None] = _nobody

    def __post_init__(self) -> None:
        """The share is one, and the seed is no negative number."""
        if not 0.0 < self.share <= 1.0:
            raise BadSetting(f"share is {self.share}; it must be above 0 and at most 1")
        if self.seed < 0:
            raise BadSetting(f"seed is {self.seed}; it must be at least 0")

    @property
    def search(self) -> Search:
        """How a highest rate is sought."""
        return THOROUGH if self.share >= 1.0 else Search(precision=2.0, reach=2.0)

    def num(self, full: int, least: int = 8) -> int:
        """This share of `full` requests."""
        return min(full, max(least, round(full * self.share)))


QUICK = 0.02
"""The share that shows that an experiment runs; its ratios say nothing."""
