"""CSV tables of measured times, read with complaints that name file, row and column."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path

from headway.errors import BadSetting


def read_rows(path: Path, columns: tuple[str, ...], *, words: tuple[str, ...] = ()) -> Iterator[list[str]]:
    """The named columns, row by row. All but those in `words` hold numbers of at least 0, or nothing.

    Raises `BadSetting` for a file that cannot be read, a missing column, or a cell that is no number.
    """
    try:
        with path.open(newline="", encoding="utf-8") as lines:
            reader = csv.DictReader(lines)
            if missing := [name for name in columns if name not in (reader.fieldnames or ())]:
                raise BadSetting(f"{path} has no column {missing[0]!r}; it must have {', '.join(columns)}")
            for number, row in enumerate(reader, start=2):
                for name in columns:
                    if name not in words and not _is_number(row[name]):
                        raise BadSetting(f"{path}, row {number}: {name} is {row[name]!r}; it must be a number ≥ 0")
                yield [row[name] for name in columns]
    except (OSError, UnicodeDecodeError) as error:
        raise BadSetting(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from error


def read_header(path: Path) -> tuple[str, ...]:
    """Names of a table's columns. Raises `BadSetting` for a file that cannot be read."""
    try:
        with path.open(newline="", encoding="utf-8") as lines:
            return tuple(next(csv.reader(lines), ()))
    except (OSError, UnicodeDecodeError) as error:
        raise BadSetting(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from error


def _is_number(cell: str | None) -> bool:
    try:
        return cell == "" or (cell is not None and 0 <= float(cell) < float("inf"))
    except ValueError:
        return False
