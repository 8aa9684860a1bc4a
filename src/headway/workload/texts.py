"""Files of prompts: JSON lines with one field of text, plain text with one prompt a line, ShareGPT's conversations."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from headway.core import json_value, unreadable
from headway.errors import BadSetting
from headway.workload.conversations import TURNS, exchange

Row = tuple[str, str | None]
"""A prompt, and the answer that it had, where the file tells."""


@dataclass(frozen=True, kw_only=True)
class Texts:
    """A file of prompts, read once. `fit` "exact" cuts or continues a text to the length asked for; "whole" sends it as
    it is.
    """

    path: Path
    field: str = "prompt"
    fit: str = "exact"

    def read(self) -> list[str]:
        """All prompts that are not blank. Raises `BadSetting` naming the file and, if one is at fault, the row."""
        return [prompt for prompt, _ in self._rows]

    @property
    def num_left_out(self) -> int:
        """Conversations without a question and its answer. Raises as `read` does."""
        return self._entries.count(None)

    def answers(self) -> list[str] | None:
        """The answer to each prompt of `read`; None where the file has prompts alone. Raises as that does."""
        answers = [answer for _, answer in self._rows if answer is not None]
        return answers if len(answers) == len(self._rows) else None

    @functools.cached_property
    def _rows(self) -> Sequence[Row]:
        rows = [row for row in self._entries if row is not None and row[0].strip()]
        if not rows:
            raise BadSetting(f"prompts {self.path}: the file holds no text")
        return rows

    @functools.cached_property
    def _entries(self) -> Sequence[Row | None]:
        try:
            with self.path.open(encoding="utf-8-sig") as file:
                return list(self._read(file))
        except (OSError, UnicodeDecodeError) as error:
            raise unreadable(self.path, error, "prompts") from error

    def _read(self, file: TextIO) -> Iterator[Row | None]:
        if self.path.suffix not in (".jsonl", ".json"):
            yield from ((line.rstrip("\n"), None) for line in file)
            return
        entries = _list(file, self.path) if is_json_list(self.path) else _lines(file, self.path)
        for where, entry in entries:
            value = entry.get(self.field) if isinstance(entry, dict) else entry
            if isinstance(value, str):
                yield value, None
            elif isinstance(entry, dict) and TURNS in entry:
                yield exchange(entry, where)
            else:
                fields = ", ".join(entry) if isinstance(entry, dict) else type(entry).__name__
                raise BadSetting(f"{where}: there is no text under {self.field!r} or {TURNS!r}; it has {fields}")


def is_json_list(path: Path) -> bool:
    """Whether a .json file is one list. Raises `OSError` and `UnicodeDecodeError`."""
    if path.suffix != ".json":
        return False
    with path.open(encoding="utf-8-sig") as file:
        return next((char for char in iter(lambda: file.read(1), "") if not char.isspace()), "") == "["


def _list(file: TextIO, path: Path) -> Iterator[tuple[str, object]]:
    try:
        entries = json.load(file)
    except (ValueError, RecursionError) as error:
        raise BadSetting(f"prompts {path} is not JSON: {error}") from error
    for number, entry in enumerate(entries, start=1):
        yield f"prompts {path}, entry {number}", entry


def _lines(file: TextIO, path: Path) -> Iterator[tuple[str, object]]:
    for number, line in enumerate(filter(str.strip, file), start=1):
        where = f"prompts {path}, row {number}"
        yield where, json_value(line, where)
