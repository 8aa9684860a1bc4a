"""Conversations as ShareGPT's files have them: the first question, and the answer to it."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import cast

from headway.errors import BadSetting

TURNS = "conversations"
_ASKS = ("human", "user")
_ANSWERS = ("gpt", "chatgpt", "assistant", "bing", "bard")


def exchange(entry: Mapping[str, object], where: str) -> tuple[str, str] | None:
    """The first human turn and the answer right behind it, in `[{"from": …, "value": …}, …]` under `TURNS`.

    None where there is no such turn, nothing that answers it, or one of the two is blank. Raises `BadSetting` for
    what is no list of turns.
    """
    turns = entry[TURNS]
    if not isinstance(turns, list):
        raise BadSetting(f"{where}: {TURNS} is {type(turns).__name__}; it must be a list of turns")
    said = [_said(turn, f"{where}, turn {number}") for number, turn in enumerate(turns, start=1)]
    for (who, question), (other, answer) in itertools.pairwise(said):
        if who in _ASKS:
            return (question, answer) if other in _ANSWERS and question.strip() and answer.strip() else None
    return None


def _said(turn: object, where: str) -> tuple[str, str]:
    parts = [turn.get(name) for name in ("from", "value")] if isinstance(turn, dict) else [None]
    if not all(isinstance(part, str) for part in parts):
        raise BadSetting(f'{where}: it must be an object with two texts, "from" and "value"')
    return cast("tuple[str, str]", tuple(parts))
