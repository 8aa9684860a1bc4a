import math

import numpy as np
import pytest

from headway.kernels import (
    log_softmax,
    paged_attention,
    rms_norm,
    rope_angles,
    rope_half_split,
    rope_interleaved,
    rope_inverse_frequencies,
    softmax,
    swiglu,
    write_kv,
)

BLOCK_SIZE, NUM_BLOCKS, NUM_HEADS, NUM_KV_HEADS, HEAD_DIM = 4, 400, 4, 2, 8


def normal(rng, *shape):
    return rng.standard_normal(shape, np.float32)


class Paged:
    """Sequences of random keys, values and queries, laid into a cache whose unused slots are NaN."""

    def __init__(self, shapes, *, seed=0, order_seed=1):
        """`shapes`: (query rows, context) of each sequence."""
        rng = np.random.default_rng(seed)
        self.shapes = shapes
        self.q = [normal(rng, rows, NUM_HEADS, HEAD_DIM) for rows, _ in shapes]
        self.k = [normal(rng, context, NUM_KV_HEADS, HEAD_DIM) for _, context in shapes]
        self.v = [normal(rng, context, NUM_KV_HEADS, HEAD_DIM) for _, context in shapes]
        order = np.random.default_rng(order_seed).permutation(NUM_BLOCKS).tolist()
        counts = [-(-context // BLOCK_SIZE) for _, context in shapes]
        self.tables = np.full((len(shapes), max(counts)), -1, np.int32)
        self.keys = np.full((NUM_BLOCKS, BLOCK_SIZE, NUM_KV_HEADS, HEAD_DIM), np.nan, np.float32)
        self.values = self.keys.copy()
        for table, count, k, v in zip(self.tables, counts, self.k, self.v, strict=True):
            table[:count] = [order.pop() for _ in range(count)]
            slots = (table[:count, None] * BLOCK_SIZE + np.arange(BLOCK_SIZE)).reshape(-1)[: len(k)].astype(np.int32)
            write_kv(self.keys, k, slots)
            write_kv(self.values, v, slots)

    def attend(self, num_dummies=0):
        q = np.concatenate([*self.q, np.ones((num_dummies, NUM_HEADS, HEAD_DIM), np.float32)])
        cu_seqlens = np.cumsum([0, *(rows for rows, _ in self.shapes)]).astype(np.int32)
        context = np.array([context for _, context in self.shapes], np.int32)
        return paged_attention(q, self.keys, self.values, cu_seqlens, context, self.tables)

    def dense(self):
        """Row by row, head by head, in float64."""
        out = []
        for (rows, context), q, k, v in zip(self.shapes, self.q, self.k, self.v, strict=True):
            for row in range(rows):
                seen = context - rows + row + 1
                out.append([self._head(q[row, h], k[:seen, h // 2], v[:seen, h // 2]) for h in range(NUM_HEADS)])
        return np.array(out)

    @staticmethod
    def _head(q, k, v):
        scores = k.astype(np.float64) @ q / math.sqrt(HEAD_DIM)
        weights = np.exp(scores - scores.max())
        return weights @ v / weights.sum()


MIXES = {
    "decodes": [(1, 6), (1, 1), (1, 33)],
    "fresh prompts": [(7, 7), (1, 1), (12, 12)],
    "chunks with a prefix": [(3, 8), (4, 32)],
    "decodes, chunks and prompts": [(1, 6), (3, 8), (2, 2)],
    "longer than a tile": [(300, 700), (1, 9), (256, 256), (257, 300)],
}


@pytest.mark.parametrize("shapes", MIXES.values(), ids=MIXES)
def test_attention_equals_dense(shapes):
    """Ragged paged attention equals attention computed for each row alone; NaN in unused slots never shows."""
    paged = Paged(shapes)
    np.testing.assert_allclose(paged.attend(), paged.dense(), atol=1e-5)


def test_attention_ignores_places():
    """Where the blocks lie changes not one bit."""
    shapes = MIXES["decodes, chunks and prompts"]
    assert np.array_equal(Paged(shapes, order_seed=1).attend(), Paged(shapes, order_seed=2).attend())


def test_attention_of_dummy_rows():
    """Rows behind the last sequence give zeros and change nothing else."""
    paged = Paged(MIXES["chunks with a prefix"])
    padded = paged.attend(num_dummies=3)
    assert np.array_equal(padded[:-3], paged.attend())
    assert not padded[-3:].any()


def test_a_chunk_equals_its_part_of_the_prompt():
    """The rows of a chunk get what they get when the whole prompt is computed at once."""
    whole, chunk = Paged([(20, 20)]), Paged([(20, 20)])
    chunk.shapes, chunk.q = [(6, 20)], [chunk.q[0][-6:]]
    np.testing.assert_allclose(chunk.attend(), whole.attend()[-6:], atol=1e-6)


def test_write_kv_touches_its_slots_only():
    """Rows go to their slots; negative slots are stored nowhere, everything else stays."""
    cache = np.zeros((3, BLOCK_SIZE, NUM_KV_HEADS, HEAD_DIM), np.float32)
    rows = normal(np.random.default_rng(0), 3, NUM_KV_HEADS, HEAD_DIM)
    write_kv(cache, rows, np.array([5, -1, 11], np.int32))
    assert np.array_equal(cache[1, 1], rows[0])
    assert np.array_equal(cache[2, 3], rows[2])
    assert np.count_nonzero(cache.any(axis=(2, 3))) == 2


def test_rope_turns_pairs_by_their_angle():
    """Pair i at position p is turned by p * base ** (-2 i / head_dim), for neighbours and for halves."""
    frequencies = rope_inverse_frequencies(4, 100.0)
    assert frequencies.tolist() == pytest.approx([1.0, 0.1])
    cos, sin = rope_angles(np.array([0, 3], np.int32), frequencies)
    x = np.array([[[1.0, 0.0, 0.0, 1.0]]] * 2, np.float32)
    turned = rope_interleaved(x, cos, sin)
    assert turned[0, 0].tolist() == [1.0, 0.0, 0.0, 1.0]
    assert turned[1, 0].tolist() == pytest.approx([math.cos(3), math.sin(3), -math.sin(0.3), math.cos(0.3)], abs=1e-6)
    halves = rope_half_split(x[..., [0, 2, 1, 3]], cos, sin)
    assert np.array_equal(halves, turned[..., [0, 2, 1, 3]])


def test_rope_depends_on_distance_only():
    """The product of a query and a key is the same wherever the pair stands."""
    rng = np.random.default_rng(0)
    frequencies = rope_inverse_frequencies(HEAD_DIM, 1e4)
    q, k = normal(rng, 1, 1, HEAD_DIM), normal(rng, 1, 1, HEAD_DIM)

    def product(q_at, k_at):
        rotated = [
            rope_interleaved(x, *rope_angles(np.array([at], np.int32), frequencies)) for x, at in ((q, q_at), (k, k_at))
        ]
        return float((rotated[0] * rotated[1]).sum())

    assert product(7, 2) == pytest.approx(product(8005, 8000), abs=1e-4)


def test_rms_norm():
    """A row's root mean square becomes 1 before the weight; the epsilon keeps zeros finite."""
    x = np.array([[3.0, 4.0], [0.0, 0.0]], np.float32)
    out = rms_norm(x, np.array([1.0, 2.0], np.float32), 1e-6)
    assert out.dtype == np.float32
    np.testing.assert_allclose(out, [[3 / math.sqrt(12.5), 8 / math.sqrt(12.5)], [0, 0]], rtol=1e-6)


def test_swiglu():
    """gate * sigmoid(gate) * up, also where the exponential overflows."""
    gate = np.array([-1000.0, -1.0, 0.0, 2.0, 1000.0], np.float32)
    out = swiglu(gate, np.full(5, 3.0, np.float32))
    expected = [0.0, -3 / (1 + math.e), 0.0, 6 / (1 + math.exp(-2)), 3000.0]
    np.testing.assert_allclose(out, expected, rtol=1e-6, atol=1e-30)


def test_softmax_and_its_logarithm():
    """Probabilities sum to 1, minus infinity gets exactly 0, large numbers do not overflow, the logarithms agree."""
    x = np.array([[1000.0, 999.0, -np.inf], [0.5, 0.5, -30.0]], np.float32)
    probabilities = softmax(x)
    np.testing.assert_allclose(probabilities.sum(axis=-1), 1.0, rtol=1e-6)
    assert probabilities[0, 2] == 0.0
    np.testing.assert_allclose(np.exp(log_softmax(x)), probabilities, rtol=1e-5)
