"""HashedPrefixCache: what is its own, beside the laws in test_prefix.py."""

import pytest

from headway.kv import HashedPrefixCache, Hit
from headway.kv.prefix import Trail

SIZE = 2
TOKENS = [1, 2, 3, 4, 5, 6]


def test_the_first_block_of_a_digest_stays():
    """A duplicate is returned unchanged and is not cached; its successors are, under the same chain."""
    cache = HashedPrefixCache(SIZE)
    cache.insert(TOKENS, [0, 1], "")
    trail = Trail()
    assert cache.insert(TOKENS, [5, 6], "", trail) == [5, 6]
    assert cache.insert(TOKENS, [5, 6, 7], "", trail) == [7]
    assert not cache.holds(5)
    assert not cache.holds(6)
    assert cache.match(TOKENS, "") == Hit(6, (0, 1, 7))


def test_a_chain_goes_on_behind_duplicates_without_memory():
    """A trail that lost its digest finds it again, though none of the blocks before is cached."""
    cache = HashedPrefixCache(SIZE)
    cache.insert(TOKENS, [0, 1], "salt")
    cache.insert(TOKENS, [5, 6, 7], "salt", Trail(2))
    assert cache.match(TOKENS, "salt").block_ids == (0, 1, 7)
    assert cache.match(TOKENS, "") is Hit.EMPTY


def test_a_block_behind_an_evicted_one_waits_for_it():
    """It cannot be found until its predecessor is computed again; then it is, since its content is still right."""
    cache = HashedPrefixCache(SIZE)
    cache.insert(TOKENS, [0, 1, 2], "")
    cache.idle([0])
    assert cache.evict(1) == [0]
    assert cache.match(TOKENS, "") is Hit.EMPTY
    cache.insert(TOKENS, [8], "")
    assert cache.match(TOKENS, "").block_ids == (8, 1, 2)


def test_equal_blocks_in_other_places_differ():
    """A digest covers all tokens before the block, so a repeated block is two blocks."""
    cache = HashedPrefixCache(SIZE)
    cache.insert([1, 2, 1, 2], [0, 1], "")
    assert cache.match([1, 2, 1, 2], "").block_ids == (0, 1)
    assert cache.match([1, 2, 1, 2, 1, 2], "").block_ids == (0, 1)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda cache: cache._digests.pop(0), "two digests share a block"),
        (lambda cache: cache._digests.update({0: cache._digests[1], 1: cache._digests[0]}), "its digest leads"),
        (lambda cache: cache._idle.update({9: None}), "an idle block has no digest"),
    ],
)
def test_check_names_the_equation_that_fails(damage, message):
    """Damaged books are found."""
    cache = HashedPrefixCache(SIZE)
    cache.insert(TOKENS, [0, 1, 2], "")
    cache.check()
    damage(cache)
    with pytest.raises(AssertionError, match=message):
        cache.check()
