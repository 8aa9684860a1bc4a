"""Keys and values of all layers in blocks, on the device (here: main memory) and in a host tier.

L layers, B blocks, P slots of a block, K key-value heads, D features of a head. All float32.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from headway.core import BlockPair

Array = NDArray[np.float32]


class PagedCache:
    """A pool of `num_blocks` blocks and its host tier of `num_host_blocks`; ids only, it knows no sequences.

    `keys_LBPKD` and `values_LBPKD` are the pool itself: kernels read and write it in place. Memory is taken from the
    system when a block is first written.
    """

    def __init__(self, shape_LPKD: tuple[int, int, int, int], num_blocks: int, num_host_blocks: int) -> None:
        layers, *block = shape_LPKD
        self.keys_LBPKD: Array = np.zeros((layers, num_blocks, *block), np.float32)
        self.values_LBPKD: Array = np.zeros_like(self.keys_LBPKD)
        self._host_keys_LBPKD: Array = np.zeros((layers, num_host_blocks, *block), np.float32)
        self._host_values_LBPKD: Array = np.zeros_like(self._host_keys_LBPKD)

    def copy(self, pairs: list[BlockPair]) -> None:
        """Copy device blocks onto device blocks, one pair after the other."""
        _copy(pairs, self.keys_LBPKD, self.keys_LBPKD)
        _copy(pairs, self.values_LBPKD, self.values_LBPKD)

    def swap_out(self, pairs: list[BlockPair]) -> None:
        """Copy device blocks to host blocks: pairs of (device, host)."""
        _copy(pairs, self.keys_LBPKD, self._host_keys_LBPKD)
        _copy(pairs, self.values_LBPKD, self._host_values_LBPKD)

    def swap_in(self, pairs: list[BlockPair]) -> None:
        """Copy host blocks to device blocks: pairs of (host, device)."""
        _copy(pairs, self._host_keys_LBPKD, self.keys_LBPKD)
        _copy(pairs, self._host_values_LBPKD, self.values_LBPKD)

    def poison(self, block_ids: list[int]) -> None:
        """Fill device blocks with NaN: a slot that is read before it was written then shows in the logits."""
        self.keys_LBPKD[:, block_ids] = np.nan
        self.values_LBPKD[:, block_ids] = np.nan


def _copy(pairs: list[BlockPair], from_LBPKD: Array, to_LBPKD: Array) -> None:
    for source, target in pairs:
        assert 0 <= source < from_LBPKD.shape[1], f"no block {source} to copy from"
        assert 0 <= target < to_LBPKD.shape[1], f"no block {target} to copy to"
        to_LBPKD[:, target] = from_LBPKD[:, source]
