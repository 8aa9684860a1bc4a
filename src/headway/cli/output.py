"""Where a command's words go: results to stdout, everything else to stderr."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

PIPE_WIDTH = 160
"""Columns of a table that no terminal cuts."""


def print_json(document: object) -> None:
    """One JSON document on stdout; nothing else may be printed there. What is no number is null: JSON has no NaN."""
    json.dump(_numbers(document), sys.stdout, ensure_ascii=False, indent=2, allow_nan=False)
    sys.stdout.write("\n")


def _numbers(value: object) -> object:
    match value:
        case dict():
            return {key: _numbers(inner) for key, inner in value.items()}
        case list() | tuple():
            return [_numbers(inner) for inner in value]
        case float() if not math.isfinite(value):
            return None
    return value


def results() -> Console:
    """A console for tables on stdout: as wide as the terminal, wide and plain into a pipe."""
    from rich.console import Console

    return Console(width=None if sys.stdout.isatty() else PIPE_WIDTH, highlight=False)


def notices() -> Console:
    """A console on stderr, for summaries and remarks."""
    from rich.console import Console

    return Console(stderr=True, width=None if sys.stderr.isatty() else PIPE_WIDTH, highlight=False)


def print_pieces(pieces: Iterable[str]) -> None:
    """Text as it comes, and an end of line behind it."""
    for text in pieces:
        sys.stdout.write(text)
        sys.stdout.flush()
    sys.stdout.write("\n")
