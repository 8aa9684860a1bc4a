"""JSON that people write: a key that stands twice in a table is a mistake, as only one of its values would count."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence

from headway.errors import BadSetting


class DoubledKey(ValueError):
    """A key that stands twice in one table."""

    def __init__(self, key: object) -> None:
        super().__init__(f"the key {key!r} is there twice in one table; remove one")


def keys_once(pairs: Sequence[tuple[str, object]]) -> dict[str, object]:
    """A table of its pairs, for `object_pairs_hook`. Raises `DoubledKey`."""
    table = dict(pairs)
    if len(table) < len(pairs):
        [(key, _)] = Counter(key for key, _ in pairs).most_common(1)
        raise DoubledKey(key)
    return table


def json_value(text: str, where: str) -> object:
    """What a JSON text says. Raises `BadSetting`, with `where`, for what is no JSON and for a doubled key."""
    try:
        return json.loads(text, object_pairs_hook=keys_once)
    except DoubledKey as error:
        raise BadSetting(f"{where}: {error}") from None
    except (ValueError, RecursionError) as error:
        raise BadSetting(f"{where} is not JSON: {error}") from None
