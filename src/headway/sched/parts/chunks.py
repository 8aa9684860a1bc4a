"""Ways to share a token budget among prompts: pure arithmetic on sizes."""

from __future__ import annotations

from collections.abc import Mapping


def first_come(wanted: Mapping[str, int], left: int, unit: int) -> dict[str, int]:
    """Tokens for each key, in order; one that is cut gets a multiple of `unit`, and after a 0 nobody gets any."""
    sizes = {}
    for key, num_tokens in wanted.items():
        size = num_tokens if num_tokens <= left else left // unit * unit
        if size == 0:
            break
        sizes[key] = size
        left -= size
    return sizes


def equal_progress(wanted: Mapping[str, int], left: int, unit: int) -> dict[str, int]:
    """Tokens for each key: `unit` (or its last few) to each in turn, while they fit into what is left."""
    sizes = dict.fromkeys(wanted, 0)
    is_moving = True
    while is_moving:
        is_moving = False
        for key, num_tokens in wanted.items():
            more = min(unit, num_tokens - sizes[key])
            if 0 < more <= left:
                sizes[key] += more
                left -= more
                is_moving = True
    return sizes
