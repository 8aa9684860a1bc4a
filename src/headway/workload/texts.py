"""Files of prompts: JSON lines with one field of text, or plain text with one prompt a line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from headway.errors import BadSetting


@dataclass(frozen=True, slots=True, kw_only=True)
class Texts:
    """A file of prompts. `fit` "exact" cuts or continues a text to the length asked for; "whole" sends it as it is."""

    path: Path
    field: str = "prompt"
    fit: str = "exact"

    def read(self) -> list[str]:
        """All prompts that are not blank. Raises `BadSetting` naming the file and, if one is at fault, the row."""
        try:
            with self.path.open(encoding="utf-8-sig") as file:
                texts = [text for text in self._texts(file) if text.strip()]
        except (OSError, UnicodeDecodeError) as error:
            raise BadSetting(f"cannot read prompts {self.path}: {getattr(error, 'strerror', None) or error}") from error
        if not texts:
            raise BadSetting(f"prompts {self.path}: the file holds no text")
        return texts

    def _texts(self, file: TextIO) -> Iterator[str]:
        if self.path.suffix not in (".jsonl", ".json"):
            yield from (line.rstrip("\n") for line in file)
            return
        for number, line in enumerate(filter(str.strip, file), start=1):
            where = f"prompts {self.path}, row {number}"
            try:
                entry = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise BadSetting(f"{where}: not JSON: {error}") from error
            value = entry.get(self.field) if isinstance(entry, dict) else entry
            if not isinstance(value, str):
                fields = ", ".join(entry) if isinstance(entry, dict) else type(entry).__name__
                raise BadSetting(f"{where}: there is no text under {self.field!r}; it has {fields}")
            yield value
