"""Whether what stands in a file is what the fields of a record say: JSON holds anything under any name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from typing import TypeVar

Record = TypeVar("Record")

MOST = 1e12
"""No time, count or size that we measure is larger, and sums of these stay finite."""


def record_of(kind: type[Record], content: Mapping[str, object]) -> Record:
    """The data class `kind` with these fields, each checked by `check_fields`.

    Raises `ValueError` for a wrong value, and `TypeError` for a name that is no field or one that is missing.
    """
    check_fields(kind, content)
    make: Callable[..., Record] = kind
    return make(**content)


def check_fields(kind: type, content: Mapping[str, object]) -> None:
    """Raise `ValueError` for the first value that its field in the data class `kind` cannot hold.

    Names that are no fields, and fields of other types than numbers, texts, truths and tables of them, are passed over.
    """
    for part in fields(kind):
        if part.name in content:
            check_value(part.name, str(part.type), content[part.name])


def check_value(name: str, annotation: str, value: object) -> None:
    """Raise `ValueError` where the value is not what the annotation says, or beyond all measure."""
    wanted, _, other = annotation.partition(" | ")
    if (other == "None" and value is None) or wanted not in _RULES:
        return
    what, is_right = _RULES[wanted]
    if not is_right(value) or (name.startswith("num_") and isinstance(value, int) and value < 0):
        raise ValueError(f"{name} is {repr(value)[:60]}; it must be {what}")


def check_numbers(name: str, values: object) -> None:
    """Raise `ValueError` where the values are no list of finite numbers."""
    if not isinstance(values, Iterable) or not all(map(_is_number, values)):
        raise ValueError(f"{name} must be a list of finite numbers")


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and -MOST <= value <= MOST


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and _is_number(value)


def _is_text(value: object) -> bool:
    # Half a surrogate pair is valid JSON, but nothing can print it.
    return isinstance(value, str) and value.encode("utf-8", "ignore").decode() == value


def _is_truth(value: object) -> bool:
    return isinstance(value, bool)


def _is_table(value: object) -> bool:
    return isinstance(value, dict)


def _is_tally(value: object) -> bool:
    return isinstance(value, dict) and all(one is None or _is_number(one) for one in value.values())


_RULES: Mapping[str, tuple[str, Callable[[object], bool]]] = {
    "float": ("a finite number", _is_number),
    "int": ("a whole number, 0 or more where it counts", _is_whole),
    "str": ("a text", _is_text),
    "bool": ("true or false", _is_truth),
    "Mapping[str, object]": ("an object", _is_table),
    "Mapping[str, float]": ("an object of numbers", _is_tally),
}
