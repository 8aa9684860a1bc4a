"""What the columns of public traces are called, and what a value in them may be."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Generic, TypeVar, cast

MAX_TOKENS = 1 << 24

Value = object
Read = TypeVar("Read")


@dataclass(frozen=True, slots=True)
class Column(Generic[Read]):
    """What a column tells: its spellings and how each is read. Of several in one trace the first here counts.

    A reader raises `ValueError` with what is allowed.
    """

    readers: Mapping[str, Callable[[Value], Read]]

    def name_in(self, fields: Mapping[str, Value]) -> str | None:
        """The spelling that a row with these fields uses."""
        return next((name for name in self.readers if name in fields), None)

    def read(self, name: str, value: Value) -> Read:
        """What stands under one of the spellings."""
        return self.readers[name](value)


def _spelt(read: Callable[[Value], Read], *names: str) -> Column[Read]:
    return Column(dict.fromkeys(names, read))


def _number(value: Value, what: str) -> float:
    try:
        number = float(cast("str", value))  # whatever it refuses is the mistake we report
    except (TypeError, ValueError):
        raise ValueError(what) from None
    is_grouped = isinstance(value, str) and "_" in value  # a number to Python alone: a recording says 1_5 by accident
    if isinstance(value, bool) or is_grouped or not math.isfinite(number):
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
AT_S = Column(
    {
        "at_s": _seconds(1.0),
        "timestamp_s": _seconds(1.0),
        "arrival_s": _seconds(1.0),
        "workload_arrival_s": _seconds(1.0),
        "arrived_at": _seconds(1.0),
        "Timestamp": _seconds(1.0),
        "timestamp": _seconds(1e-3),
        "TIMESTAMP": _date,
    }
)
NUM_PROMPT = _spelt(
    _whole(1),
    "num_prompt",
    "input_tokens",
    "prompt_tokens",
    "input_length",
    "ContextTokens",
    "num_prefill_tokens",
    "Request tokens",
)
NUM_NEW = _spelt(_whole(0), "new_input_tokens")
# No output at all: the recorded service failed to answer. The row is counted and left out.
NUM_OUTPUT = _spelt(
    _whole(0),
    "num_output",
    "output_tokens",
    "output_length",
    "GeneratedTokens",
    "num_decode_tokens",
    "Response tokens",
)
MAX_OUTPUT = _spelt(_whole(1), "max_output")
PREFIX = _spelt(_ids, "prefix", "hash_ids")
PREFIX_BLOCK = _spelt(_whole(1), "prefix_block")
TENANT = _spelt(_text, "tenant", "client")
TRAFFIC_CLASS = _spelt(_text, "traffic_class")
SESSION = _spelt(_text, "session", "Session ID", "conversation")
TURN = _spelt(_whole(0), "turn")
PRIORITY = _spelt(_whole(-(2**31), 2**31), "priority")
