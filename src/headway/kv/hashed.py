"""Prefix cache by chained block digests, as in vLLM: a block's key covers its tokens and all tokens before it."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Container, Sequence
from hashlib import blake2b
from itertools import islice
from struct import Struct
from weakref import WeakKeyDictionary

from headway.kv.prefix import Hit, Trail


class HashedPrefixCache:
    """One dictionary from chain digest to block; evicts the least recently used idle block.

    The digest is BLAKE2b with 16 bytes, so that equal digests mean equal tokens, whoever chose them; the salt
    starts the chain. The first block inserted for a digest stays; later ones are ignored, and their
    sequences keep them as private blocks. A block whose predecessor was evicted is unreachable until the
    predecessor comes back; by then its content is still right.
    """

    def __init__(self, block_size: int) -> None:
        self._block_size = block_size
        self._pack = Struct(f"<16s{block_size}q").pack
        self._blocks: dict[bytes, int] = {}
        self._digests: dict[int, bytes] = {}
        self._idle: OrderedDict[int, None] = OrderedDict()
        self._chains: WeakKeyDictionary[object, list[bytes]] = WeakKeyDictionary()  # by owner of the tokens

    @property
    def num_idle(self) -> int:
        return len(self._idle)

    @property
    def blocks(self) -> Container[int]:
        """Those that have a digest."""
        return self._digests

    def match(self, tokens: Sequence[int], salt: str, owner: object | None = None) -> Hit:
        """Follow the chain until a digest is unknown. An owner's digests are kept: only look-ups cost again."""
        size, blocks = self._block_size, self._blocks
        chain: list[bytes] = [] if owner is None else self._chains.setdefault(owner, [])
        found = []
        for at in range(len(tokens) // size):
            if at == len(chain):
                chain.append(self._link(chain[-1] if chain else _root(salt), tokens[at * size : (at + 1) * size]))
            block = blocks.get(chain[at])
            if block is None:
                break
            found.append(block)
        return Hit(len(found) * size, tuple(found)) if found else Hit.EMPTY

    def num_known(self, tokens: Sequence[int], salt: str) -> int:
        """As far as `match` goes, which changes nothing here."""
        return self.match(tokens, salt).num_tokens

    def insert(
        self, tokens: Sequence[int], block_ids: Sequence[int], salt: str, trail: Trail | None = None
    ) -> list[int]:
        """Give each block its digest unless another has it already. Returns the blocks as they came."""
        trail = trail or Trail()
        size, link, blocks, digests = self._block_size, self._link, self._blocks, self._digests
        first = trail.num_blocks
        digest = trail.digest or self._digest_at(first, tokens, block_ids, salt)
        fresh = list(block_ids[first:])
        start = first * size
        for block in fresh:
            digest = link(digest, tokens[start : start + size])
            start += size
            assert digests.get(block, digest) == digest, f"block {block} was inserted with other tokens"
            if digest not in blocks:
                blocks[digest] = block
                digests[block] = digest
        trail.num_blocks, trail.digest = len(block_ids), digest
        return fresh

    def use(self, block_ids: Sequence[int]) -> None:
        """Take the blocks out of the queue for eviction."""
        for block in block_ids:
            del self._idle[block]

    def idle(self, block_ids: Sequence[int]) -> None:
        """Put the blocks at the end of the queue for eviction."""
        digests, idle = self._digests, self._idle
        for block in block_ids:
            assert block in digests, f"block {block} is not cached"
            assert block not in idle, f"block {block} is idle already"
            idle[block] = None

    def holds(self, block: int) -> bool:
        """Whether the block has a digest."""
        return block in self._digests

    def evict(self, num: int) -> list[int]:
        """Forget the first `num` blocks of the queue."""
        idle, blocks, digests = self._idle, self._blocks, self._digests
        evicted = list(islice(idle, num))
        for block in evicted:
            del idle[block], blocks[digests.pop(block)]
        return evicted

    def forget(self, block: int) -> list[int]:
        """Forget one used block; those behind it stay, since their content does not depend on it."""
        assert block not in self._idle, f"block {block} is idle: it cannot be written to"
        del self._blocks[self._digests.pop(block)]
        return []

    def reset(self) -> list[int]:
        """Forget all idle blocks and return them."""
        return self.evict(len(self._idle))

    def check(self) -> None:
        """Digests and blocks are one to one, and idle blocks are among them."""
        assert len(self._blocks) == len(self._digests), "two digests share a block, or two blocks a digest"
        for block, digest in self._digests.items():
            assert self._blocks.get(digest) == block, f"block {block}: its digest leads elsewhere"
        assert self._idle.keys() <= self._digests.keys(), "an idle block has no digest"

    def _digest_at(self, num_blocks: int, tokens: Sequence[int], block_ids: Sequence[int], salt: str) -> bytes:
        """Digest of the first `num_blocks`: go back to one that is known, then forth over the tokens."""
        size = self._block_size
        known = next((n for n in range(num_blocks, 0, -1) if block_ids[n - 1] in self._digests), 0)
        digest = self._digests[block_ids[known - 1]] if known else _root(salt)
        for position in range(known, num_blocks):
            digest = self._link(digest, tokens[position * size : (position + 1) * size])
        return digest

    def _link(self, parent: bytes, tokens: Sequence[int]) -> bytes:
        return blake2b(self._pack(parent, *tokens), digest_size=16).digest()


def _root(salt: str) -> bytes:
    return blake2b(salt.encode("utf-8", "surrogatepass"), digest_size=16, person=b"headway root").digest()
