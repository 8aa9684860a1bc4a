"""Each compiled operation, on each kernel set this machine runs, against its NumPy definition."""

import numpy as np
import pytest

from headway import _native, kernels

pytestmark = pytest.mark.native

SETS = _native.runnable_kernel_sets()
DTYPES = {"float32": 0, "float16": 1, "int8": 2}
NO_BIAS = np.empty(0, np.float32)


@pytest.fixture(params=SETS)
def ops(request):
    return _native.Ops(request.param)


def normal(rng, *shape):
    return rng.standard_normal(shape, np.float32)


def quantised(rows, levels=127):
    """Rows rounded to `levels` steps of their largest magnitude, as float64; ties fall where float32 puts them."""
    top = np.abs(rows).max(axis=1, keepdims=True)
    return np.rint(rows * (np.float32(levels) / top)).astype(float) * (top / np.float32(levels))


@pytest.mark.parametrize("num_rows", [1, 2, 3, 4, 5, 17])
@pytest.mark.parametrize(("num_inputs", "num_outputs"), [(1, 1), (7, 5), (64, 48), (100, 97), (576, 130)])
def test_float_linear(ops, num_rows, num_inputs, num_outputs):
    """A float32 matrix product with bias is `x @ weight.T + bias`, for any shape."""
    rng = np.random.default_rng(num_rows * 1000 + num_inputs)
    x, weight, bias = normal(rng, num_rows, num_inputs), normal(rng, num_outputs, num_inputs), normal(rng, num_outputs)
    out = np.empty((num_rows, num_outputs), np.float32)
    ops.linear(x, weight, bias, False, num_rows, out)
    np.testing.assert_allclose(out, kernels.linear(x, weight) + bias, rtol=1e-5, atol=1e-5 * num_inputs**0.5)


@pytest.mark.parametrize("num_rows", [1, 2, 3, 4, 5, 17])
@pytest.mark.parametrize(("num_inputs", "num_outputs"), [(1, 1), (7, 5), (64, 48), (100, 97), (1536, 130)])
def test_int8_linear(ops, num_rows, num_inputs, num_outputs):
    """An int8 product is exact on the rounded numbers: weights to 127 steps, activations to the set's own steps."""
    rng = np.random.default_rng(num_rows * 1000 + num_inputs)
    x, weight = normal(rng, num_rows, num_inputs), normal(rng, num_outputs, num_inputs)
    out = np.empty((num_rows, num_outputs), np.float32)
    ops.linear(x, weight, NO_BIAS, True, num_rows, out)
    exact = quantised(x, ops.act_levels(num_inputs)) @ quantised(weight).T
    np.testing.assert_allclose(out, exact, rtol=2e-6, atol=3e-5 * num_inputs**0.5)


def test_int8_linear_at_full_range(ops):
    """Largest weights times largest activations do not saturate or overflow, whatever their signs."""
    for sign in (1.0, -1.0):
        x, weight = np.full((3, 1536), sign, np.float32), np.full((20, 1536), 1.0, np.float32)
        out = np.empty((3, 20), np.float32)
        ops.linear(x, weight, NO_BIAS, True, 3, out)
        np.testing.assert_allclose(out, sign * 1536, rtol=1e-6)


@pytest.mark.parametrize("quantized", [False, True])
def test_a_row_of_a_product_does_not_see_the_others(ops, quantized):
    """However many rows share a call, each gets the same bits."""
    rng = np.random.default_rng(3)
    x, weight = normal(rng, 23, 200), normal(rng, 111, 200)
    whole = np.empty((23, 111), np.float32)
    ops.linear(x, weight, NO_BIAS, quantized, 23, whole)
    for at_once in (1, 2, 3, 7, 9):
        parts = np.empty_like(whole)
        ops.linear(x, weight, NO_BIAS, quantized, at_once, parts)
        assert np.array_equal(whole, parts), at_once


@pytest.mark.parametrize("width", [1, 15, 16, 17, 576])
def test_rms_norm(ops, width):
    """The norm agrees with the reference; its quantised form rounds the weightless norm."""
    rng = np.random.default_rng(width)
    x, weight, levels = normal(rng, 4, width), normal(rng, width), ops.act_levels(width)
    out = np.empty_like(x)
    ops.rms_norm(x, weight, 1e-5, out)
    np.testing.assert_allclose(out, kernels.rms_norm(x, weight, 1e-5), rtol=2e-6, atol=1e-7)
    ops.rms_norm_quantize(x, 1e-5, levels, out)
    exact = kernels.rms_norm(x, np.ones(width, np.float32), 1e-5)
    np.testing.assert_allclose(out, exact, atol=0.51 * np.abs(exact).max() / levels)


@pytest.mark.parametrize("width", [1, 15, 16, 17, 576])
def test_quantised_rows(ops, width):
    """Every value is within half a step of the row's own scale; a row of zeros stays zero."""
    rows = normal(np.random.default_rng(width), 4, width) * np.float32([[1e-6], [1], [1e6], [0]])
    levels = ops.act_levels(width)
    out = np.empty_like(rows)
    ops.quantize(rows, levels, out)
    assert (np.abs(out - rows) <= 0.501 * np.abs(rows).max(axis=1, keepdims=True) / levels).all()


def walsh_hadamard(size):
    matrix = np.ones((1, 1))
    while len(matrix) < size:
        matrix = np.block([[matrix, matrix], [matrix, -matrix]])
    return matrix / size**0.5


@pytest.mark.parametrize("width", [1, 15, 33, 96, 1536])
def test_gated_activation(ops, width):
    """`silu(gate) * up` agrees with the reference, far from zero too."""
    rng = np.random.default_rng(width)
    gate, up = normal(rng, 3, width) * np.float32([[1], [30], [1000]]), normal(rng, 3, width)
    out = np.empty_like(gate)
    ops.silu_mul(np.hstack([gate, up]), out)
    np.testing.assert_allclose(out, kernels.swiglu(gate, up), rtol=2e-6, atol=1e-12)


@pytest.mark.parametrize(("width", "size"), [(33, 1), (96, 2), (512, 32), (1536, 32), (4864, 16)])
def test_quantised_gated_activation(ops, width, size):
    """The quantised form transforms values 16 apart by a Walsh-Hadamard matrix first."""
    rng = np.random.default_rng(width)
    gate, up, levels = normal(rng, 3, width), normal(rng, 3, width), ops.act_levels(width)
    out = np.empty_like(gate)
    ops.silu_mul_quantize(np.hstack([gate, up]), size, levels, out)
    exact = kernels.swiglu(gate, up).astype(float)
    if size > 1:
        blocks = exact.reshape(3, -1, size, 16)
        exact = np.einsum("tbsj,us->tbuj", blocks, walsh_hadamard(size)).reshape(3, width)
    np.testing.assert_allclose(out, exact, atol=0.51 * np.abs(exact).max() / levels)


@pytest.mark.parametrize("width", [1, 7, 8, 100, 49152])
def test_arg_max(ops, width):
    """The first of the largest entries wins, and a NaN never does."""
    rng = np.random.default_rng(width)
    for _ in range(20):
        row = rng.integers(0, max(2, width // 2), width).astype(np.float32)
        assert ops.argmax(row) == row.argmax()
        row[rng.integers(0, width)] = np.nan
        if width > 1:
            assert ops.argmax(row) == np.nanargmax(row)
    assert ops.argmax(np.full(width, np.nan, np.float32)) == 0
    assert ops.argmax(np.full(width, -np.inf, np.float32)) == 0


def attention(ops, q, k, v, *, block_size=16, dtype="float32", rows_at_once=4, seed=0):
    num_blocks = -(-len(k) // block_size) + 3
    table = np.random.default_rng(seed).permutation(num_blocks).astype(np.int32)
    out = np.empty_like(q)
    ops.attention(q, k, v, table, num_blocks, block_size, DTYPES[dtype], rows_at_once, out)
    return out


def dense_attention(q, k, v):
    context, num_heads = len(k), k.shape[1]
    rows = np.array([0, len(q)], np.int32), np.array([context], np.int32), np.zeros((1, 1), np.int32)
    assert q.shape[1] % num_heads == 0
    return kernels.paged_attention(q, k[None], v[None], *rows)


TOLERANCE = {"float32": 2e-6, "float16": 2e-3, "int8": 3e-2}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("num_rows", "context"), [(1, 1), (1, 33), (5, 5), (3, 64), (40, 100)])
@pytest.mark.parametrize(("num_heads", "num_kv_heads", "head_dim"), [(1, 1, 2), (3, 1, 20), (4, 2, 64), (14, 2, 96)])
def test_attention(ops, dtype, num_rows, context, num_heads, num_kv_heads, head_dim):
    """Paged attention is dense attention up to the rounding of the cache, for odd sizes too."""
    rng = np.random.default_rng(context)
    q = normal(rng, num_rows, num_heads, head_dim)
    k, v = normal(rng, context, num_kv_heads, head_dim), normal(rng, context, num_kv_heads, head_dim)
    exact = dense_attention(q, k, v)
    np.testing.assert_allclose(attention(ops, q, k, v, dtype=dtype), exact, atol=TOLERANCE[dtype])


@pytest.mark.parametrize("dtype", DTYPES)
def test_attention_does_not_see_blocks_or_company(ops, dtype):
    """Block size, places of blocks, NaN in spare slots and rows that share a call change no bit."""
    rng = np.random.default_rng(8)
    q, k, v = normal(rng, 50, 6, 48), normal(rng, 77, 2, 48), normal(rng, 77, 2, 48)
    first = attention(ops, q, k, v, dtype=dtype)
    assert np.isfinite(first).all()
    for block_size, rows_at_once, seed in [(1, 1, 1), (3, 2, 2), (16, 1, 3), (24, 5, 4), (32, 3, 5), (48, 7, 6)]:
        again = attention(ops, q, k, v, dtype=dtype, block_size=block_size, rows_at_once=rows_at_once, seed=seed)
        assert np.array_equal(first, again), block_size


def test_attention_with_one_dominant_token(ops):
    """Scores of a thousand neither overflow nor lose the winner, whatever the cache holds."""
    q, k = np.full((1, 1, 16), 100.0, np.float32), np.zeros((40, 1, 16), np.float32)
    k[5] = 10.0
    v = np.arange(40, dtype=np.float32)[:, None, None] * np.ones((1, 1, 16), np.float32)
    for dtype in DTYPES:
        np.testing.assert_allclose(attention(ops, q, k, v, dtype=dtype), 5.0, rtol=1e-2)


def test_a_missing_kernel_set_is_refused():
    """A set that this processor lacks, or that nobody knows, is an error and no crash."""
    for name in set(_native.built_kernel_sets()) - set(SETS):
        with pytest.raises(ValueError, match=f"{name}.*instructions.*scalar"):
            _native.Ops(name)
    with pytest.raises(ValueError, match=r"unknown kernel set .neon.; .*scalar"):
        _native.Ops("neon")
