"""HashedPrefixCache: what is its own, beside the laws in test_prefix.py."""

import gc

import pytest

from headway.core import Request, Sequence
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


class Hashing(HashedPrefixCache):
    """Counts the blocks that it hashes."""

    num_hashed = 0

    def _link(self, parent, tokens):
        self.num_hashed += 1
        return super()._link(parent, tokens)


def sequence(tokens, salt=""):
    return Sequence(Request(id="same", prompt_ids=tuple(tokens), max_output=9, cache_salt=salt))


def test_no_block_of_an_owner_is_hashed_twice():
    """Neither one that was found nor the first that was not, though more is cached and more tokens come by then."""
    cache, seq = Hashing(SIZE), sequence(TOKENS)
    costs = []
    for num_blocks in (1, 1, 2, 3, 3):
        cache.insert(TOKENS, list(range(num_blocks)), "")
        cache.num_hashed = 0
        assert cache.match(seq.token_ids, "", seq).num_tokens == num_blocks * SIZE
        costs.append(cache.num_hashed)
    assert costs == [2, 0, 1, 0, 0]
    seq.token_ids += [7, 8, 9]
    cache.insert(seq.token_ids, [0, 1, 2, 3], "")
    cache.num_hashed = 0
    assert cache.match(seq.token_ids, "", seq) == Hit(8, (0, 1, 2, 3))
    assert cache.num_hashed == 1


def test_what_is_kept_of_an_owner_covers_no_more_than_is_asked_about():
    """The last token is left out where it completes a block, found before or not."""
    cache, seq = HashedPrefixCache(SIZE), sequence(TOKENS)
    cache.insert(TOKENS, [0, 1, 2], "")
    assert cache.match(TOKENS, "", seq).num_tokens == 6
    assert cache.match(TOKENS[:5], "", seq).num_tokens == 4
    assert cache.match(TOKENS[:1], "", seq) is Hit.EMPTY


def test_what_is_kept_of_an_owner_goes_when_it_goes():
    """A request that ended leaves nothing behind, and another under its id is not taken for it."""
    cache, seq = HashedPrefixCache(SIZE), sequence(TOKENS)
    cache.insert(TOKENS, [0, 1, 2], "")
    other, salted = sequence([1, 2, 4, 4]), sequence(TOKENS, "salt")
    assert cache.match(seq.token_ids, "", seq).num_tokens == 6
    assert cache.match(other.token_ids, "", other).num_tokens == 2
    assert cache.match(salted.token_ids, "salt", salted) is Hit.EMPTY
    assert len(cache._chains) == 3
    del seq, other, salted
    gc.collect()
    assert not cache._chains


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
