"""What a value in a specification may be. A rule returns the value, or raises `ValueError` saying what is allowed."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

T = TypeVar("T")
Rule = Callable[[object], T]


def number(low: float, high: float = math.inf) -> Rule[float]:
    """A finite number within [low, high]."""
    allowed = f"a number from {low:g} to {high:g}" if math.isfinite(high) else f"a number of at least {low:g}"

    def read(value: object) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise ValueError(allowed)
        if not low <= value <= high:
            raise ValueError(allowed)
        return float(value)

    return read


def whole(low: int, high: int) -> Rule[int]:
    """A whole number within [low, high]."""
    allowed = f"a whole number from {low} to {high}"

    def read(value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
            raise ValueError(allowed)
        if value != int(value):
            raise ValueError(allowed)
        return int(value)

    return read


def choice(*names: str) -> Rule[str]:
    """One of `names`."""
    allowed = "one of " + ", ".join(names)

    def read(value: object) -> str:
        if value not in names:
            raise ValueError(allowed)
        return str(value)

    return read


def text(value: object) -> str:
    """A text of at least one character."""
    if not isinstance(value, str) or not value:
        raise ValueError("a text of at least one character")
    return value


def flag(value: object) -> bool:
    """True or false."""
    if not isinstance(value, bool):
        raise ValueError("true or false")  # noqa: TRY004 - a rule raises ValueError whatever is wrong
    return value


def span(low: int, high: int) -> Rule[tuple[int, int]]:
    """Two whole numbers [a, b] with low ≤ a ≤ b ≤ high; or the text "a-b"."""
    allowed = f"two whole numbers [a, b] with {low} <= a <= b <= {high}"
    end = whole(low, high)

    def read(value: object) -> tuple[int, int]:
        if isinstance(value, str):
            first, dash, last = value.partition("-")
            value = [int(first), int(last)] if dash and first.isdigit() and last.isdigit() else None
        if not isinstance(value, Sequence) or len(value) != 2:
            raise ValueError(allowed)
        try:
            ends = (end(value[0]), end(value[1]))
        except ValueError:
            raise ValueError(allowed) from None
        if ends[0] > ends[1]:
            raise ValueError(allowed)
        return ends

    return read


def mapping(value: object) -> Mapping[str, object]:
    """A table of fields."""
    if not isinstance(value, Mapping):
        raise ValueError("a table of fields")  # noqa: TRY004 - a rule raises ValueError whatever is wrong
    return value


def mappings(value: object) -> Sequence[Mapping[str, object]]:
    """A list of tables."""
    if not isinstance(value, list) or not value or not all(isinstance(part, Mapping) for part in value):
        raise ValueError("a list of tables, at least one")
    return value


def tokens(low: int, high: int) -> Rule[tuple[int, ...]]:
    """A list of whole numbers within [low, high], at least one; or the text "a/b/c", which needs no comma in a flag."""
    allowed = f"a list of whole numbers from {low} to {high}, at least one; in a text such as 10/20/30"
    one = whole(low, high)

    def read(value: object) -> tuple[int, ...]:
        if isinstance(value, str):
            value = [int(part) if part.isascii() and part.isdigit() else part for part in value.split("/")]
        elif isinstance(value, int):
            value = [value]
        if not isinstance(value, list) or not value:
            raise ValueError(allowed)
        try:
            return tuple(one(part) for part in value)
        except ValueError:
            raise ValueError(allowed) from None

    return read
