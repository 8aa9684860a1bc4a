"""BlockPool and HostTier: the states of a block, and the order in which blocks come."""

import sys

import pytest

from headway.kv import BlockPool
from headway.kv.host import HostTier


def test_blocks_come_in_the_order_in_which_they_were_freed():
    """First the untouched ones from 0 up, then whatever was given back, oldest first."""
    pool = BlockPool(4)
    assert pool.take(3) == [0, 1, 2]
    pool.give_back(pool.unref([2, 0]))
    assert pool.take(3) == [3, 2, 0]
    assert pool.num_free == 0


def test_an_unreferenced_block_is_free_only_when_given_back():
    """Between `unref` and `give_back` a block is loose: nobody is handed it, and it can be referenced again."""
    pool = BlockPool(2)
    (block,) = pool.take(1)
    pool.ref([block])
    assert pool.unref([block]) == []
    assert pool.unref([block]) == [block]
    assert not pool.is_free(block)
    assert pool.take(1) == [1]
    pool.ref([block])
    assert pool.refs == [1, 1]
    pool.check()


@pytest.mark.parametrize(
    ("mistake", "message"),
    [
        (lambda pool: pool.take(3), "3 blocks wanted, 1 free"),
        (lambda pool: pool.unref([1]), "block 1 has no reference"),
        (lambda pool: pool.ref([1]), "block 1 is free"),
        (lambda pool: pool.give_back([0]), "block 0 is still referenced"),
        (lambda pool: pool.give_back([1]), "block 1 is free already"),
    ],
)
def test_mistakes_are_named(mistake, message):
    """A caller that breaks the rules is told which block and why."""
    pool = BlockPool(2)
    pool.take(1)
    with pytest.raises(AssertionError, match=message):
        mistake(pool)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda pool: pool._free.append(1), "in the free list twice"),
        (lambda pool: pool._free.append(0), "block 0"),
        (lambda pool: pool.refs.__setitem__(1, 2), "block 1 is free and has 2 references"),
        (lambda pool: pool.refs.__setitem__(0, -1), "block 0 has -1 references"),
    ],
)
def test_check_names_the_equation_that_fails(damage, message):
    """Damaged books are found."""
    pool = BlockPool(2)
    pool.take(1)
    pool.check()
    damage(pool)
    with pytest.raises(AssertionError, match=message):
        pool.check()


def test_host_blocks_are_used_again_before_new_ones():
    """Ids stay dense, so host memory grows only when it must."""
    tier = HostTier(None)
    assert tier.take(3) == [0, 1, 2]
    tier.give_back([1, 0])
    assert tier.take(3) == [1, 0, 3]
    assert tier.num_used == 4
    assert tier.num_free == sys.maxsize - 4


def test_a_host_block_with_two_holders_is_free_after_both():
    """Sequences that left together share."""
    tier = HostTier(2)
    (host_id,) = tier.take(1)
    tier.ref([host_id])
    tier.give_back([host_id])
    assert tier.num_free == 1
    tier.check([host_id])
    tier.give_back([host_id])
    assert tier.num_free == 2
    tier.check([])


def test_the_host_tier_has_no_more_than_its_limit():
    """Whoever asks for more made a mistake."""
    tier = HostTier(2)
    with pytest.raises(AssertionError, match="3 host blocks wanted, 2 free"):
        tier.take(3)
