"""What every prefix cache can do: find the blocks of tokens seen before."""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Protocol


@dataclass(frozen=True, slots=True)
class Hit:
    """Leading tokens found in the cache, and their blocks. `num_tokens` is a whole number of blocks."""

    num_tokens: int
    block_ids: tuple[int, ...]

    EMPTY: ClassVar[Hit]


Hit.EMPTY = Hit(0, ())


@dataclass(slots=True, eq=False)
class Trail:
    """How far one sequence has been inserted, so that its next insertion costs only what is new.

    `digest` is the chain's digest at `num_blocks`, or empty when it has to be found again. The first `num_prefill`
    blocks are of its prefill, what follows of its output.
    """

    num_blocks: int = 0
    digest: bytes = b""
    num_prefill: int = 0

    def copied(self) -> Trail:
        """A trail of its own for a fork."""
        return replace(self)

    def cut(self, num_blocks: int) -> Trail:
        """A trail that ends there already."""
        return Trail(num_blocks, num_prefill=self.num_prefill)


class PrefixCache(Protocol):
    """Finds whole blocks again by the tokens in them and before them, one world per salt.

    A block that was inserted is *used* until `idle` says that nobody references it; only idle ones are
    evicted. Whoever uses a block uses all blocks before it. Block ids only: contents are the executor's.
    """

    @property
    def num_idle(self) -> int:
        """Blocks that `evict` can return."""
        ...

    @property
    def blocks(self) -> Container[int]:
        """Every block that a hit could contain. Live: read it, never write."""
        ...

    def match(self, tokens: Sequence[int], salt: str, owner: object | None = None) -> Hit:
        """The longest run of cached whole blocks that `tokens` starts with. Changes at most who is evicted first.

        `owner` is whoever asks again and again: its tokens only grow, its salt stays. What is worked out of them
        may be kept until it is gone.
        """
        ...

    def num_known(self, tokens: Sequence[int], salt: str) -> int:
        """How many tokens `match` would find. Asking changes nothing."""
        ...

    def insert(
        self, tokens: Sequence[int], block_ids: Sequence[int], salt: str, trail: Trail | None = None
    ) -> list[int]:
        """Remember the blocks, which hold the first tokens; `tokens` may go on behind them.

        With a `trail`, the blocks that it covers are left alone, and it is moved to the end. Returns the
        block to use at each place from there on: the given one, or one that was there before.
        """
        ...

    def use(self, block_ids: Sequence[int]) -> None:
        """Idle blocks are referenced again."""
        ...

    def idle(self, block_ids: Sequence[int]) -> None:
        """Nobody references these blocks any more; earlier ones are evicted earlier. A chain comes tail first."""
        ...

    def holds(self, block: int) -> bool:
        """Whether a hit could contain this block."""
        ...

    def evict(self, num: int) -> list[int]:
        """Forget `num` idle blocks or more, all if fewer, least recently used first. Returns them in that order."""
        ...

    def forget(self, block: int) -> list[int]:
        """Forget a used block that is about to be overwritten. Returns idle ones that had to go with it."""
        ...

    def reset(self) -> list[int]:
        """Forget all idle blocks and return them."""
        ...

    def check(self) -> None:
        """The cache agrees with itself; says what does not."""
        ...


class NoPrefixCache:
    """Remembers nothing; every block is private to its sequences."""

    @property
    def num_idle(self) -> int:
        return 0

    @property
    def blocks(self) -> Container[int]:
        """None."""
        return ()

    def match(self, tokens: Sequence[int], salt: str, owner: object | None = None) -> Hit:
        """Finds nothing."""
        del tokens, salt, owner
        return Hit.EMPTY

    def num_known(self, tokens: Sequence[int], salt: str) -> int:
        """None."""
        del tokens, salt
        return 0

    def insert(
        self, tokens: Sequence[int], block_ids: Sequence[int], salt: str, trail: Trail | None = None
    ) -> list[int]:
        """Keeps nothing, and moves the trail on so that nobody asks again."""
        del tokens, salt
        first = trail.num_blocks if trail else 0
        if trail:
            trail.num_blocks = len(block_ids)
        return list(block_ids[first:])

    def use(self, block_ids: Sequence[int]) -> None:
        """Can only be about no block at all."""
        assert not block_ids, "nothing is cached here"

    def idle(self, block_ids: Sequence[int]) -> None:
        """Can only be about no block at all."""
        assert not block_ids, "nothing is cached here"

    def holds(self, block: int) -> bool:
        """Never."""
        del block
        return False

    def evict(self, num: int) -> list[int]:
        """Has nothing to evict."""
        del num
        return []

    def forget(self, block: int) -> list[int]:
        """Is never asked: it holds nothing."""
        raise AssertionError(f"block {block} is not cached")

    def reset(self) -> list[int]:
        """Has nothing to forget."""
        return []

    def check(self) -> None:
        """Nothing can be wrong."""
