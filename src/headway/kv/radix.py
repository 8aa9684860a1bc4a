"""Prefix cache as a radix tree over whole blocks, one tree per salt, evicted leaf first (SGLang, arXiv 2312.07104).

    root ── [1 2 3] ──┬── [4 5 6] ── [7 11]        three sequences: 1 2 3 4 5 6 7 11,
                      └── [8 9]                    1 2 3 8 9, and any prefix of them

A node is a run of blocks that nothing branches off within. Whoever uses a block uses all before it, and idles
its tail first: so a block becomes idle after everything below it, and the order in which blocks became idle is
at once least recently used first and leaves first. No search for the next victim is needed.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, pairwise

from headway.kv.prefix import Hit, Trail

Key = tuple[int, ...]
"""The tokens of one block."""


@dataclass(slots=True, eq=False)
class _Node:
    """Blocks `start`, `start` + 1, … of every sequence that passes here. The root is empty and knows its salt.

    A node grows at its end only by the output of the sequence that made it (`maker`); whatever else comes is a child.
    """

    parent: _Node | None
    start: int
    keys: list[Key] = field(default_factory=list)
    block_ids: list[int] = field(default_factory=list)
    children: dict[Key, _Node] = field(default_factory=dict)
    maker: Trail | None = None
    salt: str = ""

    @property
    def stop(self) -> int:
        return self.start + len(self.keys)


class RadixPrefixCache:
    """Finds the longest common prefix of whole blocks; an equal prefix is stored once.

    `insert` returns the blocks already there, and the caller changes to them. Eviction gives up the least recently
    used leaf, found in constant time. Looking something up is a use, and parts it from what hangs on it.
    """

    def __init__(self, block_size: int) -> None:
        self._block_size = block_size
        self._roots: dict[str, _Node] = {}
        self._nodes: dict[int, _Node] = {}  # block -> the node that it lies in
        self._idle: OrderedDict[int, None] = OrderedDict()

    @property
    def num_idle(self) -> int:
        return len(self._idle)

    @property
    def blocks(self) -> Container[int]:
        """Those that lie in a tree."""
        return self._nodes

    def match(self, tokens: Sequence[int], salt: str, owner: object | None = None) -> Hit:
        """Walk down as far as the tokens go the same way; the way becomes recent, and a node of its own."""
        del owner  # a walk works nothing out that could be kept
        if (root := self._roots.get(salt)) is None:
            return Hit.EMPTY
        node, found = self._walk(root, tokens, 0, len(tokens) // self._block_size)
        if not found:
            return Hit.EMPTY
        if len(found) < node.stop:
            self._split(node, len(found))
        for block in reversed(found):
            if block in self._idle:
                self._idle.move_to_end(block)
        return Hit(len(found) * self._block_size, tuple(found))

    def num_known(self, tokens: Sequence[int], salt: str) -> int:
        """Walk down as `match` does, and leave the tree and the queue for eviction as they are."""
        if (root := self._roots.get(salt)) is None:
            return 0
        _, found = self._walk(root, tokens, 0, len(tokens) // self._block_size)
        return len(found) * self._block_size

    def insert(
        self, tokens: Sequence[int], block_ids: Sequence[int], salt: str, trail: Trail | None = None
    ) -> list[int]:
        """Walk down, split where the ways part, and add what is new as a leaf, each chunk of a prefill as its own.

        The blocks that `trail` covers must be the canonical ones, as an earlier insertion or a hit returned them.
        """
        first = trail.num_blocks if trail else 0
        num_blocks = len(block_ids)
        if first == num_blocks:
            return []
        node = self._nodes[block_ids[first - 1]] if first else self._root(salt)
        node, found = self._walk(node, tokens, first, num_blocks)
        fresh = first + len(found)
        if fresh < node.stop:
            node = self._split(node, fresh)
        if fresh < num_blocks:
            leaf = node
            if trail is None or node.maker is not trail or node.children or fresh <= trail.num_prefill:
                leaf = _Node(node, fresh, maker=trail)
                node.children[self._key(tokens, fresh)] = leaf
            self._append(leaf, [self._key(tokens, at) for at in range(fresh, num_blocks)], block_ids[fresh:])
        if trail:
            trail.num_blocks = num_blocks
        return [*found, *block_ids[fresh:]]

    def use(self, block_ids: Sequence[int]) -> None:
        """Take the blocks out of the queue for eviction."""
        for block in block_ids:
            del self._idle[block]

    def idle(self, block_ids: Sequence[int]) -> None:
        """Put the blocks at the end of the queue for eviction."""
        for block in block_ids:
            assert block in self._nodes, f"block {block} is not cached"
            assert block not in self._idle, f"block {block} is idle already"
            self._idle[block] = None

    def holds(self, block: int) -> bool:
        """Whether the block lies in a tree."""
        return block in self._nodes

    def evict(self, num: int) -> list[int]:
        """Forget whole leaves, the one that ends with the first block of the queue first, until `num` blocks are gone.

        Of a leaf whose front is used the rest goes.
        """
        evicted: list[int] = []
        while self._idle and len(evicted) < num:
            block = next(iter(self._idle))
            node = self._nodes[block]
            is_last = node.block_ids[-1] == block and not node.children
            assert is_last, f"block {block} went before those behind it"
            while node.block_ids and (last := node.block_ids[-1]) in self._idle:
                del self._idle[last]
                self._remove_last(node)
                evicted.append(last)
        return evicted

    def forget(self, block: int) -> list[int]:
        """Cut the tree before a used block. All blocks behind it are idle and are returned, leaves first."""
        assert block not in self._idle, f"block {block} is idle: it cannot be written to"
        gone: list[int] = []
        for node in reversed(list(_subtree(self._nodes[block]))):
            while node.block_ids:
                last = node.block_ids[-1]
                self._remove_last(node)
                if last == block:
                    return gone
                del self._idle[last]
                gone.append(last)
        raise AssertionError(f"block {block} is not in its node")

    def reset(self) -> list[int]:
        """Forget all idle blocks and return them."""
        return self.evict(len(self._idle))

    def check(self) -> None:
        """Trees, the index of blocks and the queue for eviction agree."""
        seen: dict[int, _Node] = {}
        turn = {block: place for place, block in enumerate(self._idle)}
        for salt, root in self._roots.items():
            assert root.salt == salt, f"the root of {salt!r} is for {root.salt!r}"
            assert root.children, f"the tree of {salt!r} is empty"
            assert not root.keys, f"the root of {salt!r} is not empty"
            for node in _subtree(root):
                _check_node(node, self._block_size)
                assert not seen.keys() & set(node.block_ids), "a block lies in two nodes"
                seen |= dict.fromkeys(node.block_ids, node)
                _check_turns(node, turn)
        assert seen == self._nodes, "the index of blocks and the trees differ"
        assert self._idle.keys() <= seen.keys(), "an idle block lies in no tree"

    def _key(self, tokens: Sequence[int], position: int) -> Key:
        size = self._block_size
        return tuple(tokens[position * size : (position + 1) * size])

    def _root(self, salt: str) -> _Node:
        if (root := self._roots.get(salt)) is None:
            root = self._roots[salt] = _Node(None, 0, salt=salt)
        return root

    def _walk(self, node: _Node, tokens: Sequence[int], first: int, stop: int) -> tuple[_Node, list[int]]:
        """Follow blocks [first, stop) of `tokens` from within `node`. Returns where that ends, and the way."""
        found = []
        for position in range(first, stop):
            key = self._key(tokens, position)
            if position == node.stop:
                if (child := node.children.get(key)) is None:
                    break
                node = child
            elif node.keys[position - node.start] != key:
                break
            found.append(node.block_ids[position - node.start])
        return node, found

    def _split(self, node: _Node, at: int) -> _Node:
        """Cut a node in two before block `at`. Returns the new upper part; the lower keeps its identity."""
        assert node.parent is not None, "a root has nothing to split"
        cut = at - node.start
        upper = _Node(node.parent, node.start, node.keys[:cut], node.block_ids[:cut], {node.keys[cut]: node})
        node.parent.children[upper.keys[0]] = upper
        self._nodes.update(dict.fromkeys(upper.block_ids, upper))
        node.parent, node.start = upper, at
        del node.keys[:cut], node.block_ids[:cut]
        return upper

    def _append(self, node: _Node, keys: list[Key], block_ids: Sequence[int]) -> None:
        for block in block_ids:
            assert block not in self._nodes, f"block {block} was inserted with other tokens"
            self._nodes[block] = node
        node.keys += keys
        node.block_ids += block_ids

    def _remove_last(self, node: _Node) -> None:
        """Forget the last block of a leaf, and with its last block the leaf, with its last leaf the tree."""
        del self._nodes[node.block_ids.pop()]
        key = node.keys.pop()
        if node.block_ids or node.parent is None:
            return
        parent = node.parent
        del parent.children[key]
        if not parent.children and parent.parent is None:
            del self._roots[parent.salt]


def _subtree(node: _Node) -> Iterator[_Node]:
    """A node and everything below it, each after its parent."""
    left = [node]
    while left:
        node = left.pop()
        yield node
        left += node.children.values()


def _check_node(node: _Node, block_size: int) -> None:
    assert len(node.keys) == len(node.block_ids), f"{node.block_ids}: {len(node.keys)} keys"
    assert all(len(key) == block_size for key in node.keys), f"{node.block_ids}: a key is not one block long"
    assert node.keys or node.parent is None, "a node without blocks"
    for key, child in node.children.items():
        assert child.parent is node, f"{child.block_ids} has the wrong parent"
        assert child.start == node.stop, f"{child.block_ids} starts at {child.start}, not {node.stop}"
        assert child.keys[0] == key, f"{child.block_ids} hangs under the wrong key"


def _check_turns(node: _Node, turn: dict[int, int]) -> None:
    """Whatever is idle is evicted after all that lies below it; `turn` is the place in the queue."""
    if not node.block_ids:
        return
    children = ((node.block_ids[-1], child.block_ids[0]) for child in node.children.values())
    for block, next_block in chain(pairwise(node.block_ids), children):
        if block in turn:
            assert next_block in turn, f"block {block} is idle, but {next_block} behind it is used"
            assert turn[next_block] < turn[block], f"block {block} would go before {next_block} behind it"
