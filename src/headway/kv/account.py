"""What one sequence takes in a planning pass."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(slots=True, eq=False)
class Account:
    """What one sequence will hold when the plan is carried out.

    `base` are blocks that exist now and stay or become its own; `num_blocks` its table's length in the end.
    `written` are those of `base` that it writes to and that others might share.
    """

    base: Sequence[int]
    start: int  # tokens computed or found in the cache
    num_blocks: int
    num_promised: int = 0
    written: list[int] = field(default_factory=list)

    @property
    def num_new(self) -> int:
        """Blocks taken from the free ones, copies apart."""
        return max(self.num_blocks, self.num_promised) - len(self.base)
