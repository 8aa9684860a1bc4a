"""Whatever the cuts, the company and the blocks, a sequence's logits are those of its solo run."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from headway.core import Batch, Lane
from headway.executor.reference import ReferenceExecutor
from headway.models import random_weights
from tests.support.tiny_model import tiny_config

WEIGHTS = random_weights(tiny_config(), seed=5)


def make_executor(block_size):
    num_blocks = 120 // block_size + 8
    executor = ReferenceExecutor(WEIGHTS, WEIGHTS.config, num_blocks=num_blocks, block_size=block_size)
    executor.cache.poison(list(range(num_blocks)))
    return executor


@given(data=st.data())
def test_any_mix_equals_solo_runs(data):
    """Sequences that advance by random chunks, in random company and order, over scattered blocks with NaN around."""
    block_size = data.draw(st.sampled_from([1, 3, 4, 16]), "block size")
    lengths = data.draw(st.lists(st.integers(1, 24), min_size=1, max_size=4), "lengths")
    rng = np.random.default_rng(data.draw(st.integers(0, 99), "seed"))
    prompts = [rng.integers(0, WEIGHTS.config.vocab_size, length).tolist() for length in lengths]
    executor = make_executor(block_size)
    free = rng.permutation(executor.capacity().num_blocks).tolist()
    tables = [[free.pop() for _ in range(-(-length // block_size))] for length in lengths]
    found, done = [np.empty((0, WEIGHTS.config.vocab_size), np.float32) for _ in lengths], [0] * len(lengths)
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
            found[i], done[i] = np.concatenate([found[i], part]), stop
    for ids, logits in zip(prompts, found, strict=True):
        solo = make_executor(block_size)
        table = list(range(-(-len(ids) // block_size)))
        np.testing.assert_allclose(logits, solo.logits(Batch(0, [Lane("a", ids, 0, table)])), atol=1e-4)
