"""What a command reads from its standard input."""

from __future__ import annotations

import sys

from headway.errors import BadSetting

MOST_CHARACTERS = 1 << 25
"""More than the longest context of any model holds. An endless input would else be read until memory is full."""


def is_typed() -> bool:
    """Whether standard input is a terminal; one that was closed before the start is none."""
    return sys.stdin is not None and sys.stdin.isatty()


def piped_text() -> str:
    """Standard input to its end, nothing where it is closed. Raises `BadSetting` for what is too long, or no UTF-8."""
    if sys.stdin is None:
        return ""
    try:
        text = sys.stdin.read(MOST_CHARACTERS + 1)
    except UnicodeDecodeError as error:
        raise BadSetting(f"stdin is not UTF-8: {error.reason} at byte {error.start}") from None
    if len(text) > MOST_CHARACTERS:
        raise BadSetting(f"stdin has more than {MOST_CHARACTERS} characters; no context holds them")
    return text
