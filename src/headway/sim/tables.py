"""CSV tables of measured times, read with complaints that name file, row and column."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator
from math import inf
from pathlib import Path

from headway.core import unreadable
from headway.errors import BadSetting


def read_rows(
    path: Path,
    columns: tuple[str, ...],
    *,
    words: tuple[str, ...] = (),
    whole: tuple[str, ...] = (),
    blank: tuple[str, ...] = (),
) -> Iterator[list[str]]:
    """The named columns, row by row. All but those in `words` hold numbers of at least 0, those in `blank` or nothing.

    Those in `whole` can be read by `int`. Raises `BadSetting` for a file that cannot be read, a missing column, a row
    that ends too early, or a cell that is no such number.
    """
    try:
        with path.open(newline="", encoding="utf-8") as lines:
            reader = csv.DictReader(lines)
            if missing := [name for name in columns if name not in (reader.fieldnames or ())]:
                raise BadSetting(f"{path} has no column {missing[0]!r}; it must have {', '.join(columns)}")
            for number, row in enumerate(reader, start=2):
                if None in row.values():
                    raise BadSetting(f"{path}, row {number}: it does not have the header's {len(row)} columns")
                for name in columns:
                    if name in words or (name in blank and not row[name]):
                        continue
                    read, wanted = (int, "a whole number ≥ 0") if name in whole else (float, "a number ≥ 0")
                    if not _is_read(row[name], read):
                        raise BadSetting(f"{path}, row {number}: {name} is {row[name]!r}; it must be {wanted}")
                yield [row[name] for name in columns]
    except csv.Error as error:
        raise BadSetting(f"{path} is no CSV file: {error}") from error
    except (OSError, UnicodeDecodeError) as error:
        raise unreadable(path, error) from error


def read_header(path: Path) -> tuple[str, ...]:
    """Names of a table's columns. Raises `BadSetting` for a file that cannot be read."""
    try:
        with path.open(newline="", encoding="utf-8") as lines:
            return tuple(next(csv.reader(lines), ()))
    except (OSError, UnicodeDecodeError) as error:
        raise unreadable(path, error) from error


def _is_read(cell: str, read: Callable[[str], float]) -> bool:
    try:
        return 0 <= read(cell) < inf
    except ValueError:
        return False
