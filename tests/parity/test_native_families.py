"""Compiled code against the reference for every family and RoPE scaling, through its loader."""

from itertools import pairwise

import numpy as np
import pytest

from headway import _native
from headway.core import Batch, Lane
from headway.executor.native_loader import NativeLoader
from headway.executor.reference import ReferenceExecutor
from headway.executor.registry import ExecutorOptions, PoolSize
from headway.models import GgufFile, HfFolder, load_weights
from tests.support.families import FAMILIES, family_weights, write_family_gguf, write_folder

pytestmark = pytest.mark.native

POOL = PoolSize(num_blocks=12, block_size=16)
SETS = _native.runnable_kernel_sets()


def batch(vocab_size):
    """A long prompt in scattered blocks, a short one, and rows of padding."""
    ids = np.random.default_rng(4).integers(0, vocab_size, 100).tolist()
    return Batch(0, [Lane("a", ids[:83], 0, [5, 0, 9, 7, 2, 11]), Lane("b", ids[83:], 0, [3, 8])], num_wasted_rows=2)


def relative_error(file, **options):
    """Of the native logits, as a part of the reference's largest."""
    mixed = batch(file.config.vocab_size)
    exact = ReferenceExecutor(load_weights(file), file.config, num_blocks=12, block_size=16).logits(mixed)
    executor = NativeLoader(ExecutorOptions(threads=2, **options)).load(file, POOL)
    executor.cache.poison(list(range(POOL.num_blocks)))
    return np.abs(executor.logits(mixed) - exact).max() / np.abs(exact).max()


@pytest.fixture(params=FAMILIES)
def weights(request):
    return family_weights(request.param)


@pytest.mark.parametrize("kernel_set", SETS)
def test_float32_equals_the_reference(tmp_path, weights, kernel_set):
    """From a folder and from a GGUF file, whose features turn in other pairs: within 1e-4."""
    write_folder(tmp_path, weights)
    write_family_gguf(tmp_path / "model.gguf", weights)
    options = {"weights": "float32", "kv_dtype": "float32", "kernels": kernel_set}
    assert relative_error(HfFolder.open(tmp_path), **options) < 1e-4
    assert relative_error(GgufFile.open(tmp_path / "model.gguf"), **options) < 1e-4


@pytest.mark.parametrize("kernel_set", SETS)
@pytest.mark.parametrize("kv_dtype", ["float16", "int8"])
def test_int8_is_near_the_reference(tmp_path, weights, kernel_set, kv_dtype):
    """A rotation and a rounding away: a few per cent on random weights."""
    write_folder(tmp_path, weights)
    assert relative_error(HfFolder.open(tmp_path), weights="int8", kv_dtype=kv_dtype, kernels=kernel_set) < 0.08


@pytest.mark.parametrize("form", ["int8", "float32"])
def test_neighbours_chunks_and_blocks_change_no_bit(tmp_path, weights, form):
    """Biases and norms of heads keep the promise too: a prompt in a batch, and alone in pieces and other blocks."""
    write_folder(tmp_path, weights)
    executor = NativeLoader(ExecutorOptions(threads=2, weights=form, kv_dtype="float16")).load(
        HfFolder.open(tmp_path), POOL
    )
    mixed = batch(weights.config.vocab_size)
    together = executor.logits(mixed)[:83].copy()
    ids, blocks = mixed.lanes[0].token_ids, [1, 4, 6, 10, 11, 0]
    cuts = [0, 1, 8, 24, 83]
    alone = [executor.logits(Batch(0, [Lane("a", ids[a:b], a, blocks)])) for a, b in pairwise(cuts)]
    assert np.array_equal(np.concatenate(alone), together)
