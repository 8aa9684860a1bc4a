"""Helpers for policy parameters: fields with a help text, and bounds that state value, limit and way out."""

from __future__ import annotations

from dataclasses import field
from typing import Any

from headway.errors import BadSetting


def param(default: Any, help_text: str) -> Any:  # noqa: ANN401  # dataclasses.field is typed the same way
    """A dataclass field with a default and a help text for `headway policies NAME`."""
    return field(default=default, metadata={"help": help_text})


def at_least(name: str, value: float, low: float) -> None:
    """Raise `BadSetting` when a parameter lies below its bound."""
    if value < low:
        raise BadSetting(f"{name} is {value}; it must be at least {low:g}")


def between(name: str, value: float, low: float, high: float) -> None:
    """Raise `BadSetting` when a parameter lies outside its bounds."""
    if not low <= value <= high:
        raise BadSetting(f"{name} is {value}; it must be between {low:g} and {high:g}")


def between_or_off(name: str, value: float, low: float, high: float) -> None:
    """Raise `BadSetting` when a parameter is neither 0, which switches its part off, nor within its bounds."""
    if value != 0.0 and not low <= value <= high:
        raise BadSetting(f"{name} is {value}; it must be 0 or between {low:g} and {high:g}")
