"""What the lines of a decision log may hold. It is a file like any other: it may have been cut, edited or damaged."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from headway.core import Cause, FinishReason, Tier
from headway.errors import BadSetting
from headway.sim.plant import MOST_BLOCKS

MOST_TOKENS = 10_000_000
MOST_S = 1e9
MOST_ID = 1 << 44

Rule = tuple[str, Callable[[Any], bool]]


def check_entry(entry: Mapping[str, Any], where: str) -> None:
    """Raise `BadSetting`, naming the line, for the first field that is missing or holds what it cannot."""
    kind = entry["kind"]
    if not isinstance(kind, str) or kind not in _SHAPES:
        raise BadSetting(f"{where}: kind is {repr(kind)[:40]}; known: {', '.join(_SHAPES)}")
    for name, (allowed, is_right) in _SHAPES[kind].items():
        if name not in entry:
            raise BadSetting(f"{where}: {name} is missing; it must be {allowed}")
        if not is_right(entry[name]):
            raise BadSetting(f"{where}: {name} is {repr(entry[name])[:60]}; it must be {allowed}")


def _is_number(value: object, low: float, high: float) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and low <= value <= high


def _is_whole(value: object, low: int, high: int) -> bool:
    return isinstance(value, int) and _is_number(value, low, high)


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _whole(low: int, high: int) -> Rule:
    return f"a whole number from {low} to {high}", lambda value: _is_whole(value, low, high)


def _number(low: float, high: float) -> Rule:
    return f"a number from {low:g} to {high:g}", lambda value: _is_number(value, low, high)


def _or_null(rule: Rule) -> Rule:
    allowed, is_right = rule
    return f"null or {allowed}", lambda value: value is None or is_right(value)


def _among(*known: object) -> Rule:
    names = ", ".join(map(str, known))
    return f"one of {names}", lambda value: isinstance(value, str | int) and value in known


def _all(what: str, is_right: Callable[[object], bool]) -> Rule:
    return f"a list of {what}", lambda value: isinstance(value, list) and all(map(is_right, value))


def _table(what: str, is_right: Callable[[object], bool]) -> Rule:
    return f"an object of {what}", lambda value: isinstance(value, dict) and all(map(is_right, value.values()))


_TEXT: Rule = ("a text", _is_text)
_TIME = _number(0, MOST_S)
_IDS = _all("ids", _is_text)

_SHAPES: Mapping[str, Mapping[str, Rule]] = {
    "engine": {
        "version": _whole(0, 1000),
        "policy": _TEXT,
        "settings": _table("texts", _is_text),
        "limits": _table("numbers", lambda value: value is None or _is_number(value, -MOST_S, MOST_S)),
        "num_blocks": _whole(1, MOST_BLOCKS),
        "block_size": _whole(1, 1 << 16),
        "num_host_blocks": _or_null(_whole(0, MOST_BLOCKS)),
        "prefix_cache": _TEXT,
    },
    "arrived": {
        "id": _TEXT,
        "at_s": _TIME,
        "arrival_s": _TIME,
        "num_prompt": _whole(1, MOST_TOKENS),
        "max_output": _whole(1, MOST_TOKENS),
        "choices": _whole(1, 1 << 16),
        "priority": _whole(-(1 << 31), 1 << 31),
        "tenant": _TEXT,
        "weight": _number(1e-9, MOST_S),
        "kv_guaranteed": _number(0, 1),
        "kv_most": _number(0, 1),
        "tier": _among(*map(int, Tier)),
        "deadline_s": _or_null(_number(-MOST_S, 2 * MOST_S)),
        "ttft_s": _or_null(_number(-MOST_S, MOST_S)),
        "predicted": _or_null(_whole(0, MOST_TOKENS)),
        "prefix": _all("whole numbers", lambda value: _is_whole(value, 0, MOST_ID)),
    },
    "step": {
        "start_s": _TIME,
        "end_s": _TIME,
        "grants": _table("numbers of tokens", lambda value: _is_whole(value, 0, MOST_TOKENS)),
        **dict.fromkeys(("preempted", "swapped_out", "swapped_in", "finished", "rejected"), _IDS),
    },
    "ended": {"id": _TEXT, "num_output": _whole(0, MOST_TOKENS), "reason": _among(*map(str, FinishReason))},
    "refused": {"id": _TEXT, "cause": _among(*map(str, Cause))},
}
"""Fields of each kind of line, with what they may be."""
