"""Where a field of a specification was written, so that a message can point there."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

import yaml

Path = tuple[str | int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """The text a specification came from, and the flags that changed it. `kind`: toml, yaml, json, or empty."""

    name: str = "workload"
    kind: str = ""
    text: str = ""
    flags: Mapping[Path, str] = field(default_factory=dict)  # field -> the flag that gave it

    def where(self, path: Path) -> str:
        """The field as a user finds it: `chat.toml, line 7: arrivals.rate`, or `--rate`."""
        for depth in range(len(path), 0, -1):
            if flag := self.flags.get(path[:depth]):
                rest = spell(path[depth:])
                return f"{flag}: {rest}" if rest else flag
        line = self._line(path)
        return f"{self.name}, line {line}: {spell(path)}" if line else f"{self.name}: {spell(path)}"

    def _line(self, path: Path) -> int | None:
        """The line of the field, or of the nearest table around it."""
        lines = _toml_lines(self.text) if self.kind == "toml" else _yaml_lines(self.text) if self.kind else {}
        while path and path not in lines:
            path = path[:-1]
        return lines.get(path)


def spell(path: Path) -> str:
    """`tenants[0].slo.ttft_s`, first element 0."""
    words = [f"[{part}]" if isinstance(part, int) else f".{part}" for part in path]
    return "".join(words).removeprefix(".")


_HEADER = re.compile(r"\s*(\[\[?)\s*([^\[\]#]+?)\s*\]\]?\s*(#.*)?$")
_ENTRY = re.compile(r"\s*((?:[A-Za-z0-9_-]+|\"[^\"]*\"|'[^']*')(?:\s*\.\s*(?:[A-Za-z0-9_-]+|\"[^\"]*\"|'[^']*'))*)\s*=")


def _toml_lines(text: str) -> dict[Path, int]:
    """Line of each table and each field that starts a line. Inside an inline table, the table's line serves."""
    lines: dict[Path, int] = {}
    sizes: dict[Path, int] = {}  # elements so far of each array of tables
    table: Path = ()
    for number, line in enumerate(text.splitlines(), start=1):
        if header := _HEADER.match(line):
            table = _resolve(_keys(header[2]), sizes)
            if header[1] == "[[":
                sizes[table] = sizes.get(table, 0) + 1
                table = (*table, sizes[table] - 1)
            lines.setdefault(table, number)
        elif entry := _ENTRY.match(line):
            lines.setdefault(table + _keys(entry[1]), number)
    return lines


def _keys(dotted: str) -> Path:
    return tuple(part.strip().strip("\"'") for part in dotted.split("."))


def _resolve(keys: Path, sizes: Mapping[Path, int]) -> Path:
    """`tenants.slo` after the second `[[tenants]]` is the path ("tenants", 1, "slo")."""
    path: Path = ()
    for position, key in enumerate(keys):
        path = (*path, key)
        if path in sizes and position < len(keys) - 1:
            path = (*path, sizes[path] - 1)
    return path


def _yaml_lines(text: str) -> dict[Path, int]:
    """Line of each field of a YAML or JSON text; none where it does not parse.

    What an alias repeats has the lines of its first place alone: an alias may hold itself.
    """
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except (yaml.YAMLError, RecursionError):
        return {}
    lines: dict[Path, int] = {}
    seen: set[int] = set()
    pending: deque[tuple[Path, object]] = deque([((), root)])
    while pending:
        path, node = pending.popleft()
        if id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, yaml.MappingNode):
            for key, value in node.value:
                lines[(*path, str(key.value))] = key.start_mark.line + 1
                pending.append(((*path, str(key.value)), value))
        elif isinstance(node, yaml.SequenceNode):
            for index, value in enumerate(node.value):
                lines[(*path, index)] = value.start_mark.line + 1
                pending.append(((*path, index), value))
    return lines
