import numpy as np
import pytest

from headway.executor.paged import PagedCache


def numbered_cache():
    """Two layers; every element of block b holds b (keys) or -b (values)."""
    cache = PagedCache((2, 4, 1, 2), num_blocks=5, num_host_blocks=2)
    cache.keys_LBPKD[:] = np.arange(5).reshape(1, 5, 1, 1, 1)
    cache.values_LBPKD[:] = -cache.keys_LBPKD
    return cache


def blocks(cache):
    keys, values = cache.keys_LBPKD, cache.values_LBPKD
    assert np.array_equal(keys, -values)
    assert np.array_equal(keys, np.broadcast_to(keys[:1, :, :1, :, :1], keys.shape))
    return keys[0, :, 0, 0, 0].tolist()


def test_copies_in_order():
    """Pairs are copied one after the other: a chain passes the first block on."""
    cache = numbered_cache()
    cache.copy([(4, 1), (1, 2)])
    assert blocks(cache) == [0, 4, 4, 3, 4]


def test_swap_there_and_back():
    """The host tier keeps what was swapped out, whatever happens to the device block."""
    cache = numbered_cache()
    cache.swap_out([(3, 0), (1, 1)])
    cache.copy([(0, 3), (0, 1)])
    cache.swap_in([(0, 2), (1, 4)])
    assert blocks(cache) == [0, 0, 3, 0, 1]


def test_poison():
    """Poisoned blocks hold NaN only, the others are untouched."""
    cache = numbered_cache()
    cache.poison([1, 3])
    assert np.isnan(cache.keys_LBPKD[:, [1, 3]]).all()
    assert np.isnan(cache.values_LBPKD[:, [1, 3]]).all()
    assert np.isfinite(cache.keys_LBPKD[:, [0, 2, 4]]).all()


@pytest.mark.parametrize("pair", [(5, 0), (-1, 0), (0, 2), (0, -1)])
def test_unknown_blocks(pair):
    """A block that does not exist is our bug, never a neighbour's block."""
    with pytest.raises(AssertionError, match="no block"):
        numbered_cache().swap_out([pair])
