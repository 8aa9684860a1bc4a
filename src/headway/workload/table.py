"""Reading one table of a specification: every field is checked, and a field nobody asked for is an error."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import TypeVar

from headway.errors import BadSetting
from headway.workload.origin import Origin, Path, spell
from headway.workload.rules import Rule, mapping, mappings

T = TypeVar("T")

_NEAR = 0.81
"""No two fields of one table are as alike as this; on_rate and off_rate nearly are."""


class Table:
    """Fields of one table by name. Call `done` when all were taken."""

    def __init__(self, content: Mapping[str, object], origin: Origin, path: Path = ()) -> None:
        self._content, self._origin, self.path = content, origin, path
        self._asked: list[str] = []

    def __contains__(self, key: str) -> bool:
        """Whether the field is given; asking makes its name known."""
        self._ask(key)
        return self._content.get(key) is not None

    def take(self, key: str, rule: Rule[T]) -> T | None:
        """The field's value under `rule`, None where it is not given. Raises `BadSetting`."""
        self._ask(key)
        value = self._content.get(key)
        if value is None:
            return None
        try:
            return rule(value)
        except ValueError as error:
            raise self.error(key, f"is {_show(value)}; it must be {error}") from None

    def need(self, key: str, rule: Rule[T]) -> T:
        """The field's value under `rule`. Raises `BadSetting`, also where it is not given."""
        value = self.take(key, rule)
        if value is None:
            try:
                rule(None)
            except ValueError as error:
                raise self.missing(key, f"is missing; it must be {error}") from None
            raise self.missing(key, "is missing")
        return value

    def raw(self, key: str) -> object:
        """The field as written, None where it is not given."""
        self._ask(key)
        return self._content.get(key)

    def table(self, key: str) -> Table | None:
        """A table inside this one."""
        content = self.take(key, mapping)
        return None if content is None else Table(content, self._origin, (*self.path, key))

    def tables(self, key: str) -> list[Table]:
        """A list of tables; empty where it is not given."""
        content = self.take(key, mappings) or ()
        return [Table(part, self._origin, (*self.path, key, index)) for index, part in enumerate(content)]

    def inner(self, key: str, content: Mapping[str, object]) -> Table:
        """A table that was written as something shorter under `key`."""
        return Table(content, self._origin, (*self.path, key))

    def error(self, key: str, what: str) -> BadSetting:
        """What to raise about a field: says where it stands. An empty `key` means the table itself."""
        path = (*self.path, key) if key else self.path
        return BadSetting(f"{self._origin.where(path)} {what}")

    def missing(self, key: str, what: str) -> BadSetting:
        """What to raise where a field is not given: names another, not asked for so far, that may be meant."""
        others = [str(other) for other in self._content if other not in self._asked]
        near = difflib.get_close_matches(key, others, n=1, cutoff=_NEAR)
        return self.error(key, f"{what}; is {near[0]} misspelt?" if near else what)

    def done(self) -> None:
        """Raises `BadSetting` for a field that nobody asked for."""
        for key in self._content:
            if key not in self._asked:
                near = difflib.get_close_matches(str(key), self._asked, n=1, cutoff=_NEAR)
                hint = f"; did you mean {near[0]}?" if near else f"; known here: {', '.join(sorted(self._asked))}"
                raise self.error(str(key), f"is no field of {spell(self.path) or 'a workload'}{hint}")

    def _ask(self, key: str) -> None:
        if key not in self._asked:
            self._asked.append(key)


def _show(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
