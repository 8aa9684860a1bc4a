"""What the columns of public traces are called, and what a value in them may be."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import cast

MAX_TOKENS = 1 << 24

Value = object


@dataclass(frozen=True, slots=True)
class Column:
    """One spelling of a column: what it tells, and how to read it.

    A reader raises `ValueError` with what is allowed.
    """

    role: str
    read: Callable[[Value], object]


def _number(value: Value, what: str) -> float:
    try:
        number = float(cast("str", value))  # whatever it refuses is the mistake we report
    except (TypeError, ValueError):
        raise ValueError(what) from None
    if isinstance(value, bool) or not math.isfinite(number):
        raise ValueError(what)
    return number


def _whole(low: int, high: int = MAX_TOKENS) -> Callable[[Value], int]:
    what = f"a whole number from {low} to {high}"

    def read(value: Value) -> int:
        number = _number(value, what)
        if number != int(number) or not low <= number <= high:
            raise ValueError(what)
        return int(number)

    return read


def _seconds(unit_s: float) -> Callable[[Value], float]:
    what = "a time of at least 0"

    def read(value: Value) -> float:
        number = _number(value, what)
        if number < 0:
            raise ValueError(what)
        return number * unit_s

    return read


def _date(value: Value) -> float:
    what = "a date and time such as 2023-11-16 18:01:51.163"
    text = str(value).strip()
    main, dot, rest = text.partition(".")
    zone = next((rest[i:] for i, char in enumerate(rest) if not char.isdigit()), "")
    digits = rest[: len(rest) - len(zone)]
    try:
        whole = datetime.fromisoformat(main + zone)
    except ValueError:
        raise ValueError(what) from None
    if whole.tzinfo is None:
        whole = datetime.fromisoformat(main + "+00:00")  # only differences matter
    return whole.timestamp() + (float(f"0.{digits}") if dot and digits else 0.0)


def _text(value: Value) -> str:
    return "" if value is None else str(value)


def _ids(value: Value) -> tuple[int, ...]:
    what = "a list of whole numbers"
    if value is None:
        return ()
    if not isinstance(value, list) or any(isinstance(part, bool) or not isinstance(part, int) for part in value):
        raise ValueError(what)
    return tuple(value)


# Azure 2023/2024, BurstGPT, Mooncake (and vLLM's timed traces), vidur, the CSV files of engines' own logs, ours.
COLUMNS: Mapping[str, Column] = {
    "at_s": Column("at_s", _seconds(1.0)),
    "timestamp_s": Column("at_s", _seconds(1.0)),
    "arrival_s": Column("at_s", _seconds(1.0)),
    "workload_arrival_s": Column("at_s", _seconds(1.0)),
    "arrived_at": Column("at_s", _seconds(1.0)),
    "Timestamp": Column("at_s", _seconds(1.0)),
    "timestamp": Column("at_s", _seconds(1e-3)),
    "TIMESTAMP": Column("at_s", _date),
    "num_prompt": Column("num_prompt", _whole(1)),
    "input_tokens": Column("num_prompt", _whole(1)),
    "prompt_tokens": Column("num_prompt", _whole(1)),
    "input_length": Column("num_prompt", _whole(1)),
    "ContextTokens": Column("num_prompt", _whole(1)),
    "num_prefill_tokens": Column("num_prompt", _whole(1)),
    "Request tokens": Column("num_prompt", _whole(1)),
    "new_input_tokens": Column("num_new", _whole(0)),
    # No output at all: the recorded service failed to answer. The row is counted and left out.
    "num_output": Column("num_output", _whole(0)),
    "output_tokens": Column("num_output", _whole(0)),
    "output_length": Column("num_output", _whole(0)),
    "GeneratedTokens": Column("num_output", _whole(0)),
    "num_decode_tokens": Column("num_output", _whole(0)),
    "Response tokens": Column("num_output", _whole(0)),
    "max_output": Column("max_output", _whole(1)),
    "prefix": Column("prefix", _ids),
    "hash_ids": Column("prefix", _ids),
    "prefix_block": Column("prefix_block", _whole(1)),
    "tenant": Column("tenant", _text),
    "client": Column("tenant", _text),
    "traffic_class": Column("traffic_class", _text),
    "session": Column("session", _text),
    "Session ID": Column("session", _text),
    "conversation": Column("session", _text),
    "turn": Column("turn", _whole(0)),
    "priority": Column("priority", _whole(-(2**31), 2**31)),
}


def spellings(role: str) -> str:
    """All spellings of a column, for a message."""
    return ", ".join(name for name, column in COLUMNS.items() if column.role == role)


def roles_of(names: Iterable[str]) -> dict[str, str]:
    """Role -> the spelling that a trace with these columns uses; the table's first one wins."""
    present = set(names)
    roles: dict[str, str] = {}
    for name, column in COLUMNS.items():
        if name in present:
            roles.setdefault(column.role, name)
    return roles
