"""Recorded requests: lengths, times, tenants, shared prefixes. CSV with a header, JSON lines, or one JSON list.

The columns' names tell the format (`trace_columns`): Azure's, Mooncake's, BurstGPT's, vLLM's, vidur's and ours are
read as they are published. Unknown columns are passed over.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TextIO, TypeVar, cast

from headway.core import json_value, unreadable
from headway.errors import BadSetting
from headway.workload import trace_columns as columns
from headway.workload.trace_columns import Column

Read = TypeVar("Read")
Other = TypeVar("Other")

_SERVEGEN = ({"rate_rps", "pattern"}, {"quantile_levels"})
MOONCAKE_BLOCK = 512  # tokens behind one hash id, where the trace does not say


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceRow:
    """One recorded request. `at_s` is None in a trace without times. `num_prompt` counts the whole prompt."""

    num_prompt: int
    num_output: int
    max_output: int | None = None
    at_s: float | None = None
    prefix: tuple[int, ...] = ()
    prefix_block: int = MOONCAKE_BLOCK
    tenant: str = ""
    traffic_class: str = ""
    session: str = ""
    turn: int = 0
    priority: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """A trace as read: its rows by time, or in the file's order where there are no times.

    `num_skipped` rows had no prompt or no output and are left out: the recorded service failed to answer.
    """

    path: Path
    rows: tuple[TraceRow, ...]
    num_skipped: int = 0

    @property
    def has_times(self) -> bool:
        """Whether it can be replayed, and not only drawn from."""
        return self.rows[0].at_s is not None

    @property
    def has_sessions(self) -> bool:
        """Whether rows belong to conversations."""
        return any(row.session for row in self.rows)


def read_trace(path: Path, *, limit: int | None = None) -> Trace:
    """The first `limit` rows of a trace file, or all. Raises `BadSetting` naming file, row, column and value."""
    rows: list[TraceRow] = []
    said: dict[str, int] = {}
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            for number, fields in enumerate(_fields(file, path), start=1):
                if limit is not None and number > limit:
                    break
                rows.append(_row(fields, f"trace {path}, row {number}", said))
    except (OSError, UnicodeDecodeError) as error:
        raise unreadable(path, error, "trace") from error
    answered = {number: row for number, row in enumerate(rows, start=1) if row.num_output and row.num_prompt}
    if not answered:
        raise BadSetting(f"trace {path} holds no requests")
    return Trace(path=path, rows=tuple(_in_order(answered, path)), num_skipped=len(rows) - len(answered))


def _fields(file: TextIO, path: Path) -> Iterator[Mapping[str, object]]:
    """Each row's columns by name."""
    start = file.read(1)
    while start and start.isspace():
        start = file.read(1)
    file.seek(0)
    if start == "{":
        yield from _json_lines(file, path)
    elif start == "[":
        yield from _json_list(file, path)
    else:
        yield from _csv(file, path)


def _csv(file: TextIO, path: Path) -> Iterator[Mapping[str, object]]:
    reader = csv.DictReader(file, skipinitialspace=True, strict=True)
    number = 0
    try:
        for number, fields in enumerate(reader, start=1):
            if None in fields or None in fields.values():
                many = len(reader.fieldnames or ())
                raise BadSetting(f"trace {path}, row {number}: it does not have the header's {many} columns")
            yield fields
    except csv.Error as error:
        raise BadSetting(f"trace {path}, row {number + 1}: {error}") from error


def _json_lines(file: TextIO, path: Path) -> Iterator[Mapping[str, object]]:
    number = 0
    for line in file:
        if line.strip():
            number += 1
            yield _object(line, f"trace {path}, row {number}")


def _object(line: str, where: str) -> Mapping[str, object]:
    fields = json_value(line, where)
    if not isinstance(fields, dict):
        raise BadSetting(f"{where}: must be a JSON object, not {type(fields).__name__}")
    return fields


def _json_list(file: TextIO, path: Path) -> Iterator[Mapping[str, object]]:
    try:
        entries = json.load(file)
    except (ValueError, RecursionError) as error:
        raise BadSetting(f"trace {path} is not JSON: {error}") from error
    for number, fields in enumerate(entries, start=1):
        if not isinstance(fields, dict):
            raise BadSetting(f"trace {path}, row {number}: must be a JSON object, not {type(fields).__name__}")
        yield fields


def _row(fields: Mapping[str, object], where: str, said: dict[str, int]) -> TraceRow:
    """One row. `said` holds the tokens of each session so far, where a trace counts only what is new.

    A row of no session goes on from nothing.
    """
    cells = _Cells(fields, where)
    session = cells.read(columns.SESSION, "")
    num_new = cells.read(columns.NUM_NEW, None)
    num_prompt = cells.need(columns.NUM_PROMPT, "num_prompt") if num_new is None else said.get(session, 0) + num_new
    num_output = cells.need(columns.NUM_OUTPUT, "num_output")
    if session and num_new is not None:
        said[session] = num_prompt + num_output
    return TraceRow(
        num_prompt=num_prompt,
        num_output=num_output,
        max_output=cells.read(columns.MAX_OUTPUT, None),
        at_s=cells.read(columns.AT_S, None),
        prefix=cells.read(columns.PREFIX, ()),
        prefix_block=cells.read(columns.PREFIX_BLOCK, MOONCAKE_BLOCK),
        tenant=cells.read(columns.TENANT, ""),
        traffic_class=cells.read(columns.TRAFFIC_CLASS, ""),
        session=session,
        turn=cells.read(columns.TURN, 0),
        priority=cells.read(columns.PRIORITY, 0),
    )


@dataclass(frozen=True, slots=True)
class _Cells:
    """A row's columns by what they tell. Raises `BadSetting`."""

    fields: Mapping[str, object]
    where: str

    def read(self, column: Column[Read], missing: Other) -> Read | Other:
        """What the column says, or `missing` without one."""
        name = column.name_in(self.fields)
        return missing if name is None else self._value(column, name)

    def need(self, column: Column[Read], what: str) -> Read:
        """What the column says, which must be there."""
        name = column.name_in(self.fields)
        if name is None:
            known = ", ".join(column.readers)
            if any(mark <= self.fields.keys() for mark in _SERVEGEN):
                raise BadSetting(
                    f"{self.where}: this is a file of ServeGen's, which has no requests but clients' rates or lengths; "
                    "give both files in a specification: [servegen] with rates and lengths"
                )
            raise BadSetting(f"{self.where}: there is no column for {what}; known names: {known}")
        return self._value(column, name)

    def _value(self, column: Column[Read], name: str) -> Read:
        try:
            return column.read(name, self.fields[name])
        except ValueError as error:
            raise BadSetting(f"{self.where}: {name} is {self.fields[name]!r}; it must be {error}") from None


def _in_order(rows: Mapping[int, TraceRow], path: Path) -> Iterable[TraceRow]:
    """Rows, given by their number in the file, by time."""
    timeless = [number for number, row in rows.items() if row.at_s is None]
    if len(timeless) == len(rows):
        return rows.values()
    if timeless:
        raise BadSetting(f"trace {path}, row {timeless[0]}: it has no time, but other rows have")
    ordered = sorted(rows.values(), key=lambda row: cast("float", row.at_s))
    first_s = cast("float", ordered[0].at_s)
    return [replace(row, at_s=cast("float", row.at_s) - first_s) for row in ordered]
