"""Every operation of a Llama-type model in NumPy float32: the definition of correct.

Names of arrays carry their shape:

    T  tokens (rows) of a step      S  sequences of a step       C  context tokens of one sequence
    H  query heads                  K  key-value heads           G  query heads per key-value head, H = K * G
    D  features of a head           F  D / 2, pairs that rotate  M, N  input and output features of a matrix
    B  blocks of the cache          P  slots of a block          X  any leading axes

A cache is one layer's keys or values, [B, P, K, D]. Slot s is place s % P of block s // P.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float32]
Ints = NDArray[np.int32]

_QUERY_TILE = 256
"""Rows of one sequence whose scores exist at a time: bounds memory to H * 256 * C numbers."""


def rms_norm(x_TM: Array, weight_M: Array, eps: float) -> Array:
    """Each row divided by its root mean square, times the weight (arXiv 1910.07467)."""
    mean_T1: Array = np.mean(np.square(x_TM), axis=-1, keepdims=True)
    root_T1: Array = np.sqrt(mean_T1 + np.float32(eps))
    return x_TM / root_T1 * weight_M


def linear(x_TM: Array, weight_NM: Array) -> Array:
    """`x @ weight.T`: a weight has one row per output."""
    return x_TM @ weight_NM.T


def swiglu(gate_TN: Array, up_TN: Array) -> Array:
    """`gate * sigmoid(gate) * up` (arXiv 2002.05202)."""
    # Overflows to infinity for very negative gates, and gate / infinity is the right limit, 0.
    with np.errstate(over="ignore"):
        inverse_sigmoid_TN: Array = np.exp(-gate_TN)
    inverse_sigmoid_TN += 1.0
    return gate_TN / inverse_sigmoid_TN * up_TN


def softmax(x_XN: Array) -> Array:
    """Probabilities along the last axis. A row needs one finite entry; entries of minus infinity get exactly 0."""
    weights_XN: Array = np.exp(x_XN - np.max(x_XN, axis=-1, keepdims=True))
    weights_XN /= np.sum(weights_XN, axis=-1, keepdims=True)
    return weights_XN


def log_softmax(x_XN: Array) -> Array:
    """Natural logarithm of `softmax`, summed in float64 so that its error does not grow with the vocabulary."""
    shifted_XN: Array = x_XN - np.max(x_XN, axis=-1, keepdims=True)
    total_X1 = np.sum(np.exp(shifted_XN), axis=-1, keepdims=True, dtype=np.float64)
    return shifted_XN - np.log(total_X1).astype(np.float32)


def rope_inverse_frequencies(head_dim: int, base: float) -> NDArray[np.float64]:
    """Radians per position of each of the head_dim / 2 pairs: `base ** (-2 i / head_dim)` (arXiv 2104.09864)."""
    return base ** (-np.arange(0, head_dim, 2, dtype=np.float64) / head_dim)


def rope_angles(positions_T: Ints, frequencies_F: NDArray[np.float64]) -> tuple[Array, Array]:
    """Cosine and sine, each [T, F], of the angle of every pair at every position.

    Angles are made in float64: a float32 angle at position 8,000 is off by up to 0.0005 radians.
    """
    angles_TF = positions_T[:, None] * frequencies_F
    return np.cos(angles_TF).astype(np.float32), np.sin(angles_TF).astype(np.float32)


def rope_interleaved(x_THD: Array, cos_TF: Array, sin_TF: Array) -> Array:
    """Turn the pairs (0, 1), (2, 3), ... of every head: how GGUF orders the rows of Llama-type models."""
    out_THD = np.empty_like(x_THD)
    _rotate(x_THD[..., 0::2], x_THD[..., 1::2], (cos_TF, sin_TF), (out_THD[..., 0::2], out_THD[..., 1::2]))
    return out_THD


def rope_half_split(x_THD: Array, cos_TF: Array, sin_TF: Array) -> Array:
    """Turn the pairs (0, D/2), (1, D/2 + 1), ... of every head: how Hugging Face orders them."""
    half = x_THD.shape[-1] // 2
    out_THD = np.empty_like(x_THD)
    _rotate(x_THD[..., :half], x_THD[..., half:], (cos_TF, sin_TF), (out_THD[..., :half], out_THD[..., half:]))
    return out_THD


def _rotate(a_THF: Array, b_THF: Array, angle: tuple[Array, Array], out: tuple[Array, Array]) -> None:
    cos_T1F, sin_T1F = angle[0][:, None, :], angle[1][:, None, :]
    out[0][...] = a_THF * cos_T1F - b_THF * sin_T1F
    out[1][...] = a_THF * sin_T1F + b_THF * cos_T1F


def write_kv(cache_BPKD: Array, rows_TKD: Array, slots_T: Ints) -> None:
    """Store each row in its slot. Rows with a negative slot are stored nowhere."""
    num_blocks, block_size, num_heads, head_dim = cache_BPKD.shape
    kept = slots_T >= 0
    cache_BPKD.reshape(num_blocks * block_size, num_heads, head_dim)[slots_T[kept]] = rows_TKD[kept]


def paged_attention(
    q_THD: Array, keys_BPKD: Array, values_BPKD: Array, cu_seqlens_S1: Ints, context_S: Ints, tables_SB: Ints
) -> Array:
    """Causal attention of ragged query rows over paged keys and values, [T, H, D] like the queries.

    Sequence s owns rows cu_seqlens[s] to cu_seqlens[s + 1], the last positions of its `context_S[s]` tokens; each row
    sees the positions up to its own, read from the blocks of `tables_SB[s]` (semantics of arXiv 2604.15464). The step's
    own keys and values must be in the cache already. Rows behind the last sequence give zeros. No other block and no
    slot past the context is ever read.
    """
    out_THD = np.zeros_like(q_THD)
    scaled_THD = q_THD * np.float32(q_THD.shape[-1] ** -0.5)
    for first, stop, context, table_B in zip(cu_seqlens_S1, cu_seqlens_S1[1:], context_S, tables_SB, strict=False):
        keys_CKD = _gather(keys_BPKD, table_B, context)
        values_CKD = _gather(values_BPKD, table_B, context)
        for row in range(first, stop, _QUERY_TILE):
            end = min(row + _QUERY_TILE, stop)
            seen = context - (stop - end)
            out_THD[row:end] = _attend(scaled_THD[row:end], keys_CKD[:seen], values_CKD[:seen])
    return out_THD


def _gather(cache_BPKD: Array, table_B: Ints, context: int) -> Array:
    block_size = cache_BPKD.shape[1]
    blocks_BPKD = cache_BPKD[table_B[: -(-context // block_size)]]
    return blocks_BPKD.reshape(-1, *cache_BPKD.shape[2:])[:context]


def _attend(q_THD: Array, keys_CKD: Array, values_CKD: Array) -> Array:
    """Attention of the last T positions of a context over all of it."""
    num_rows, num_heads, head_dim = q_THD.shape
    context, num_kv_heads, _ = keys_CKD.shape
    # Queries that share a key head stand together: one matrix product for each key head.
    q_KGTD = q_THD.reshape(num_rows, num_kv_heads, -1, head_dim).transpose(1, 2, 0, 3)
    scores_KRC = q_KGTD.reshape(num_kv_heads, -1, head_dim) @ keys_CKD.transpose(1, 2, 0)
    if num_rows > 1:
        position_T1 = np.arange(context - num_rows, context)[:, None]
        hidden_TC = np.arange(context) > position_T1
        np.copyto(scores_KRC.reshape(num_kv_heads, -1, num_rows, context), -np.inf, where=hidden_TC)
    out_KRD = softmax(scores_KRC) @ values_CKD.transpose(1, 0, 2)
    return out_KRD.reshape(num_kv_heads, -1, num_rows, head_dim).transpose(2, 0, 1, 3).reshape(num_rows, num_heads, -1)
