"""Settings in a TOML file: flags as keys, the policy's parameters as a table. Flags on the line win, `--set` by key."""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import typer

from headway.cli.output import notices
from headway.core import unreadable
from headway.errors import BadSetting

_NOT_KEYS = frozenset({"config", "set", "settings"})
"""Flags that a file cannot set by their own names: a policy's parameters stand in its table."""

_TABLE = "headway.policy_table"
_ORIGIN = "headway.config_file"


@dataclass(frozen=True, slots=True)
class _Table:
    """A file's parameters, for the policy that it names; without a name for whichever runs."""

    path: Path
    policy: str | None
    settings: dict[str, str]


@dataclass(frozen=True, slots=True)
class _Origin:
    """The file that the defaults are from, and how it writes the key of each parameter."""

    path: Path
    keys: dict[str, str]


def use_config_file(ctx: typer.Context, path: Path | None) -> Path | None:
    """Make a file's values the defaults of the command, before its other flags are read.

    Keys are flag names with dashes or underscores; a `[policy]` table holds `name` and the policy's parameters.
    Raises `BadSetting` for a file that cannot be read, an unknown key, and one that is there under two names.
    """
    if path is None or ctx.resilient_parsing:
        return path
    values = _read(path)
    table = _policy_table(path, values.pop("policy", {}))
    names = {
        option.lstrip("-").replace("-", "_"): option_.name for option_ in ctx.command.params for option in option_.opts
    }
    names |= {str(param.name): param.name for param in ctx.command.params}
    defaults: dict[str, object] = {}
    origin = _Origin(path, {})
    for spelled, value in values.items():
        key = _plain(spelled)
        if key not in names or key in _NOT_KEYS:
            known = sorted((names.keys() | {"policy"}) - _NOT_KEYS)
            near = difflib.get_close_matches(key, known, n=1)
            hint = f" (did you mean {near[0]!r}?)" if near else ""
            raise BadSetting(
                f"{path}: unknown key {key!r}{hint}; known: {', '.join(known)}; policy may be a table, too"
            )
        if (other := origin.keys.setdefault(name := str(names[key]), spelled)) != spelled:
            raise _twice(path, other, spelled)
        defaults[name] = value if isinstance(value, list) else str(value)
    if table.policy is not None:
        if "policy" in defaults:
            raise _twice(path, origin.keys["policy"], "policy")
        defaults["policy"] = table.policy
    ctx.meta[_TABLE], ctx.meta[_ORIGIN] = table, origin
    ctx.default_map = {**(ctx.default_map or {}), **defaults}
    return path


def add_from_file(ctx: typer.Context, texts: Sequence[str] | None) -> list[str]:
    """The `--set` texts of the line, and before them what a file's table has for other keys.

    A table for another policy than the line's says nothing, which is told.
    """
    given, table = list(texts or ()), ctx.meta.get(_TABLE)
    if table is None or ctx.resilient_parsing:
        return given
    policy = ctx.params["policy"]
    if table.policy not in (None, policy):
        if table.settings:
            notices().print(f"{table.path}: its [policy] table is for {table.policy}, not for {policy}", markup=False)
        return given
    keys = {_plain(text.partition("=")[0].strip()) for text in given}
    return [*(f"{key}={value}" for key, value in table.settings.items() if key not in keys), *given]


def blame_file(error: Exception) -> str | None:
    """What is wrong with a value, by file and key, if the value of this usage error came out of a file."""
    ctx, param = getattr(error, "ctx", None), getattr(error, "param", None)
    if ctx is None or param is None or (origin := ctx.meta.get(_ORIGIN)) is None:
        return None
    # By name: typer may bring its own copy of click's enumeration.
    source = ctx.get_parameter_source(param.name)
    if source is None or source.name != "DEFAULT_MAP" or param.name not in origin.keys:
        return None
    return f"{origin.path}: {origin.keys[param.name]}: {getattr(error, 'message', error)}"


def _read(path: Path) -> dict[str, object]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise unreadable(path, error) from None
    except (ValueError, RecursionError) as error:
        raise BadSetting(f"{path} is not TOML: {error}") from None


def _policy_table(path: Path, policy: object) -> _Table:
    """What a file says of the policy: a name, or a table of its parameters with or without one."""
    if isinstance(policy, str):
        policy = {"name": policy}
    if not isinstance(policy, dict):
        raise BadSetting(f"{path}: policy must be a name or a table, not {policy!r}")
    spelled: dict[str, str] = {}
    for key in policy:
        if (other := spelled.setdefault(_plain(key), key)) != key:
            raise _twice(path, other, key)
    settings = {key: _text(policy[name]) for key, name in spelled.items() if key != "name"}
    return _Table(path, str(policy["name"]) if "name" in policy else None, settings)


def _twice(path: Path, one: str, other: str) -> BadSetting:
    return BadSetting(f"{path}: {one} and {other} are the same; remove one")


def _plain(key: str) -> str:
    return key.replace("-", "_")


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
