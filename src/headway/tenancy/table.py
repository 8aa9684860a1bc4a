"""One table of a tenants file, read key by key. What nobody asked for is a mistake, and so is a wrong type."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from datetime import UTC, date, datetime
from typing import Any

from headway.errors import BadSetting


class Table:
    """Typed reads from a TOML table. Raises `BadSetting` that names the place, the value and what would be right."""

    def __init__(self, where: str, values: object) -> None:
        if not isinstance(values, Mapping):
            raise BadSetting(f"{where or 'the file'} must be a table, not {values!r}")
        self.where = where
        self._values: Mapping[str, Any] = values
        self._asked: list[str] = []

    def text(self, name: str, default: str | None = None) -> str | None:
        """A text, or `default`."""
        found: str | None = self._read(name, default, lambda value: isinstance(value, str) and value != "", "a text")
        return found

    def flag(self, name: str) -> bool:
        """True or false; false when left out."""
        return bool(self._read(name, False, lambda value: isinstance(value, bool), "true or false"))

    def count(self, name: str, default: int | None = None) -> int | None:
        """A whole number from 1, or `default`."""
        found: int | None = self._read(
            name, default, lambda value: type(value) is int and value >= 1, "a whole number, 1 or more"
        )
        return found

    def positive(self, name: str, default: float | None = None) -> float | None:
        """A number above 0, or `default`."""
        found: float | None = self._read(
            name, default, lambda value: _is_number(value) and value > 0, "a number above 0"
        )
        return found

    def share(self, name: str, default: float) -> float:
        """A number from 0 to 1."""
        return float(self._read(name, default, lambda value: _is_number(value) and 0 <= value <= 1, "between 0 and 1"))

    def choice(self, name: str, choices: Collection[str], default: str) -> str:
        """One of a few words."""
        return str(self._read(name, default, lambda value: value in choices, f"one of {', '.join(choices)}"))

    def texts(self, name: str) -> list[str] | None:
        """A list of texts, None when left out."""

        def fits(value: object) -> bool:
            return isinstance(value, list) and bool(value) and all(isinstance(text, str) for text in value)

        found: list[str] | None = self._read(name, None, fits, "a list of texts")
        return found

    def moment(self, name: str) -> datetime | None:
        """A date (its first moment, UTC) or a date with a time; None when left out."""
        value = self._read(name, None, lambda value: isinstance(value, date), "a date, written like 2027-01-31")
        if value is None or isinstance(value, datetime):
            return value if value is None or value.tzinfo else value.replace(tzinfo=UTC)
        return datetime(value.year, value.month, value.day, tzinfo=UTC)

    def table(self, name: str) -> Table:
        """A table inside this one, empty when left out."""
        return Table(self._inside(name), self._read(name, {}, lambda value: isinstance(value, dict), "a table"))

    def tables(self, name: str) -> dict[str, Table]:
        """A table of tables, empty when left out."""
        wanted = f"a table for each, [{self._inside(name)}.NAME]"
        found = self._read(name, {}, lambda value: isinstance(value, dict), wanted)
        return {key: Table(f"{self._inside(name)}.{key}", value) for key, value in found.items()}

    def rows(self, name: str) -> list[Table]:
        """A list of tables, empty when left out."""
        found = self._read(name, [], lambda value: isinstance(value, list), "a list of tables")
        return [Table(f"{self._inside(name)}[{place}]", value) for place, value in enumerate(found)]

    def end(self) -> None:
        """Refuse keys that nobody asked for."""
        if unknown := sorted(self._values.keys() - set(self._asked)):
            raise BadSetting(
                f"{self.where or 'the file'} has an unknown key {unknown[0]!r}; known: {', '.join(sorted(self._asked))}"
            )

    def _inside(self, name: str) -> str:
        return f"{self.where}.{name}" if self.where else name

    def _read(self, name: str, default: Any, fits: Any, wanted: str) -> Any:  # noqa: ANN401  TOML values of any type
        self._asked.append(name)
        value = self._values.get(name, default)
        if name in self._values and not fits(value):
            raise BadSetting(f"{self._inside(name)} is {str(value)[:80]!r}; it must be {wanted}")
        return value


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
