"""Orders of a queue that make the most of a prefix cache (SGLang, arXiv 2312.07104; ALGORITHMS §9)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from headway.core import Sequence
from headway.kv import Hit

Find = Callable[[Sequence], Hit]
"""What the prefix cache holds of a sequence."""


def longest_prefix_first(waiting: Iterable[Sequence], find: Find) -> list[Sequence]:
    """By cached tokens, most first; ties keep their order."""
    return sorted(waiting, key=lambda seq: -find(seq).num_tokens)


@dataclass(slots=True, eq=False)
class _Node:
    """A cached block on the way of somebody waiting. `weight` counts who ends here or below, `own` who ends here."""

    weight: int = 0
    children: dict[int, _Node] = field(default_factory=dict)
    own: list[Sequence] = field(default_factory=list)


def heaviest_branch_first(waiting: Iterable[Sequence], find: Find) -> list[Sequence]:
    """Depth first through the cached prefixes, at each fork where more are waiting first; who ends there comes last.

    With an unlimited cache and nobody arriving later, every shared prefix is then computed once.
    """
    root = _Node()
    for seq in waiting:
        node = root
        for block in find(seq).block_ids:
            node = node.children.setdefault(block, _Node())
            node.weight += 1
        node.own.append(seq)
    ordered: list[Sequence] = []
    left = [root]
    while left:  # from the back: a node's own, then its children from the lightest
        node = left.pop()
        ordered += reversed(node.own)
        # Stable in reverse: of two equal branches the one met first is visited first.
        left += sorted(node.children.values(), key=lambda child: -child.weight)
    ordered.reverse()
    return ordered


def siblings(waiting: Iterable[Sequence], find: Find, threshold: int) -> set[str]:
    """Ids of those who share `threshold` tokens with somebody earlier, and find no more than that in the cache.

    Put off, they will find what the other computes (in-batch prefix caching). Nobody for a threshold of 0.
    """
    starts: set[tuple[str, tuple[int, ...]]] = set()
    found: set[str] = set()
    for seq in waiting if threshold > 0 else ():
        start = seq.request.cache_salt, tuple(seq.token_ids[:threshold])
        if find(seq).num_tokens > threshold or len(start[1]) < threshold:
            continue
        if start in starts:
            found.add(seq.id)
        starts.add(start)
    return found
