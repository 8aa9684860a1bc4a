"""Fields with several shapes, each read into one. A mistake raises `ValueError` with what would be right."""

from __future__ import annotations

import re
from collections.abc import Iterator

Prompt = list[str] | list[list[int]]
"""One entry per prompt: all texts, or all token ids."""

_TOKEN_ID = re.compile(r"-?[0-9]{1,10}", re.ASCII)


def whole(value: object) -> object:
    """A float without a fraction as the integer that JSON Schema takes it for; anything else as it is."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def prompt(value: object) -> Prompt:
    """A string, strings, token ids, or lists of token ids. Whether one is empty is seen after tokenizing."""
    if isinstance(value, str):
        return [value]
    if value == []:
        raise ValueError("must hold at least one prompt")
    if texts := _strings(value):
        return texts
    if (ids := _token_ids(value)) is not None:
        return [ids]
    lists = [_token_ids(ids) for ids in value] if isinstance(value, list) else []
    if lists and all(ids is not None for ids in lists):
        return [ids for ids in lists if ids is not None]
    raise ValueError("must be a string, a list of strings, a list of token ids or a list of such lists")


def _strings(value: object) -> list[str] | None:
    return value if isinstance(value, list) and all(isinstance(text, str) for text in value) else None


def _token_ids(value: object) -> list[int] | None:
    if not isinstance(value, list):
        return None
    # `type` and not `isinstance`: true and false are no token ids.
    if all(type(token) is int for token in value):
        return value
    ids = [whole(token) for token in value]
    return [token for token in ids if type(token) is int] if all(type(token) is int for token in ids) else None


def stop_strings(value: object) -> tuple[str, ...]:
    """None, a string or strings."""
    match value:
        case None:
            return ()
        case str():
            texts: list[str] = [value]
        case _:
            if (found := _strings(value)) is None:
                raise ValueError("must be a string or a list of strings")
            texts = found
    return tuple(texts)


def logit_bias(value: object) -> tuple[tuple[int, float], ...]:
    """None, or an object from token ids, written as strings, to numbers."""
    match value:
        case None:
            return ()
        case dict():
            return tuple(_biases(value))
        case _:
            raise ValueError("must be an object from token ids to numbers")


def _biases(value: dict[str, object]) -> Iterator[tuple[int, float]]:
    for key, bias in value.items():
        if not _TOKEN_ID.fullmatch(key):
            raise ValueError(f"key {key[:20]!r} must be a token id")
        if isinstance(bias, bool) or not isinstance(bias, int | float) or abs(bias) > 1e9:
            raise ValueError(f"the bias of token {key} must be a number between -100 and 100")
        yield int(key), float(bias)
