"""What reading a specification needs besides its tables."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """Paths count from `folder`. `count_tokens` counts a text's tokens as the target does; None where nobody can.

    `skipped` fills as traces are read: by file, the rows that are no requests.
    """

    seed: int = 0
    folder: Path = field(default_factory=Path)
    count_tokens: Callable[[str], int] | None = None
    skipped: dict[Path, int] = field(default_factory=dict)
