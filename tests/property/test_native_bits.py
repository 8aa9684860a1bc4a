"""Scheduling is invisible: the compiled executor's logits are those of a solo run, bit for bit."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.core import Batch, Lane
from headway.kernels.native import runnable_kernel_sets
from headway.models import random_weights
from tests.support.native_models import native_executor, native_model
from tests.support.tiny_model import tiny_config

pytestmark = pytest.mark.native

WEIGHTS = random_weights(tiny_config(num_heads=6, num_kv_heads=2, ffn_size=1024), seed=5)
SETS = runnable_kernel_sets()
VOCAB_SIZE = WEIGHTS.config.vocab_size
MODELS = {}


def model(kernel_set, form, num_threads):
    key = kernel_set, form, num_threads
    if key not in MODELS:
        MODELS[key] = native_model(WEIGHTS, form=form, kernel_set=kernel_set, num_threads=num_threads)
    return MODELS[key]


def solo_logits(kernel_set, form, kv_dtype, ids):
    """The whole prompt at once, alone, on one thread, in blocks of 32."""
    executor = native_executor(model(kernel_set, form, 1), kv_dtype=kv_dtype, num_blocks=8, block_size=32)
    return executor.logits(Batch(0, [Lane("solo", ids, 0, list(range(8)))]))


@pytest.mark.parametrize("kv_dtype", ["float32", "float16", "int8"])
@pytest.mark.parametrize("form", ["float32", "int8"])
@given(data=st.data())
def test_any_mix_equals_solo_runs(form, kv_dtype, data):
    """Random chunks, company, order, threads, block sizes, places and kernel sets, with NaN in every other slot."""
    kernel_set = data.draw(st.sampled_from(SETS), "kernel set")
    block_size = data.draw(st.sampled_from([1, 3, 16, 32, 48]), "block size")
    num_threads = data.draw(st.integers(1, 3), "threads")
    lengths = data.draw(st.lists(st.integers(1, 150), min_size=1, max_size=4), "lengths")
    rng = np.random.default_rng(data.draw(st.integers(0, 99), "seed"))
    prompts = [rng.integers(0, VOCAB_SIZE, length).tolist() for length in lengths]
    num_blocks = sum(-(-length // block_size) for length in lengths) + 3
    executor = native_executor(
        model(kernel_set, form, num_threads), kv_dtype=kv_dtype, num_blocks=num_blocks, block_size=block_size
    )
    free = rng.permutation(num_blocks).tolist()
    tables = [[free.pop() for _ in range(-(-length // block_size))] for length in lengths]
    found, done = [[] for _ in lengths], [0] * len(lengths)
    while open_ones := [i for i, length in enumerate(lengths) if done[i] < length]:
        members = data.draw(st.lists(st.sampled_from(open_ones), min_size=1, unique=True), "members")
        chunks = [data.draw(st.integers(1, lengths[i] - done[i]), "chunk") for i in members]
        stops = [done[i] + chunk for i, chunk in zip(members, chunks, strict=True)]
        lanes = [
            Lane(str(i), prompts[i][done[i] : stop], done[i], tables[i]) for i, stop in zip(members, stops, strict=True)
        ]
        batch = Batch(0, lanes, num_wasted_rows=data.draw(st.integers(0, 2), "wasted"))
        rows = np.split(executor.logits(batch), np.cumsum(chunks)[:-1])
        for i, stop, part in zip(members, stops, rows, strict=True):
            found[i].append(part)
            done[i] = stop
    for ids, parts in zip(prompts, found, strict=True):
        assert np.array_equal(np.concatenate(parts), solo_logits(kernel_set, form, kv_dtype, ids))
