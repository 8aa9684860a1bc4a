"""Specification files, and the same options as flags."""

from __future__ import annotations

import contextlib
import functools
import json
import tomllib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import yaml

from headway.core import DoubledKey, keys_once, unreadable
from headway.errors import BadSetting
from headway.workload.flags import apply_flags
from headway.workload.origin import Origin
from headway.workload.origin import Path as FieldPath
from headway.workload.spec import parse_workload
from headway.workload.texts import is_json_list
from headway.workload.workload import Workload
from headway.workload.yaml_text import read_yaml

KINDS = {".toml": "toml", ".yaml": "yaml", ".yml": "yaml", ".json": "json"}
TRACES = {".csv", ".jsonl"}


def load_workload(
    path: Path | None = None,
    flags: Mapping[str, object] | None = None,
    *,
    count_tokens: Callable[[str], int] | None = None,
) -> Workload:
    """The workload of a file, of flags (`flags.FLAGS`), or of a file with flags over it.

    A .toml, .yaml or .json file is a specification, a .csv or .jsonl file a trace to replay, a JSON list ShareGPT's
    conversations. Raises `BadSetting` naming the file, line and field, or the flag.
    """
    name, kind, text = "workload", "", ""
    content: dict[str, object] = {}
    if path is not None and path.suffix in TRACES:
        content = {"trace": {"file": path.name}}
    elif path is not None and _is_list(path):
        content = {"prompts": {"file": path.name, "fit": "whole"}}
    elif path is not None:
        name, kind, text = str(path), _kind(path), _read(path)
        content = parse_text(text, kind, name)
    origins: dict[FieldPath, str] = {}
    if flags:
        content, origins = apply_flags(content, flags)
    folder = path.parent if path is not None else Path()
    origin = Origin(name=name, kind=kind, text=text, flags=origins)
    return parse_workload(content, origin=origin, folder=folder, count_tokens=count_tokens)


def parse_text(text: str, kind: str, name: str) -> dict[str, object]:
    """The content of a TOML, YAML or JSON text. Raises `BadSetting` naming the line that cannot be read.

    A key that stands twice in a table is refused: only one of its values would count.
    """
    try:
        content = _PARSERS[kind](text)
    except tomllib.TOMLDecodeError as error:
        raise BadSetting(f"{name} is not TOML: {error}") from error
    except json.JSONDecodeError as error:
        raise BadSetting(f"{name}, line {error.lineno} is not JSON: {error.msg}") from error
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f", line {mark.line + 1}" if mark else ""
        raise BadSetting(f"{name}{line} is not YAML: {getattr(error, 'problem', None) or error}") from error
    except DoubledKey as error:
        raise BadSetting(f"{name}: {error}") from None
    except RecursionError as error:
        raise BadSetting(f"{name} is nested too deeply") from error
    except ValueError as error:  # a number with more digits than Python reads, a date that is none
        raise BadSetting(f"{name} holds a value that cannot be read: {error}") from error
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise BadSetting(f"{name} must be a table of fields, not {type(content).__name__}")
    return content


_PARSERS: Mapping[str, Callable[[str], object]] = {
    "toml": tomllib.loads,
    "json": functools.partial(json.loads, object_pairs_hook=keys_once),
    "yaml": read_yaml,
}


def _kind(path: Path) -> str:
    if path.suffix not in KINDS:
        known = ", ".join((*KINDS, *sorted(TRACES)))
        raise BadSetting(f"workload {path}: its name ends in {path.suffix or 'nothing'}; it must be one of {known}")
    return KINDS[path.suffix]


def _is_list(path: Path) -> bool:
    with _reading(path):
        return is_json_list(path)


def _read(path: Path) -> str:
    with _reading(path):
        return path.read_text(encoding="utf-8-sig")


@contextlib.contextmanager
def _reading(path: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, UnicodeDecodeError) as error:
        raise unreadable(path, error, "workload") from error
