"""The executor that defines correct results: NumPy, float32, nothing fused.

T rows of the step, H query heads, K key-value heads, D features of a head, M hidden size, R rows with logits,
V vocabulary.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from headway import kernels
from headway.core import Batch, BlockPair, Logprobs, StepResult
from headway.errors import ExecutorFault
from headway.executor.base import Capacity
from headway.executor.finished import Finished, run_at_once
from headway.executor.pack import Packed, Scored, pack
from headway.executor.paged import PagedCache
from headway.executor.sampling import sample, score
from headway.models import LayerWeights, LlamaWeights, ModelConfig, rope_frequencies

Array = NDArray[np.float32]

_SCORED_TILE = 64
"""Prompt rows whose logits exist at a time, when their log probabilities are asked for."""


class ReferenceExecutor:
    """Runs a Llama-type model on batches of any mix over a paged float32 cache.

    Chunking, neighbours, padding and the choice of blocks change logits only by rounding: the matrix library picks its
    order of summation by the number of rows. Greedy text therefore equals the solo run's except where the two likeliest
    tokens are nearly tied (float32 logits differ by about 1e-5). Sampling itself adds no such dependence.

    A step that raised `ExecutorFault` may be launched again without its copies, which were done: it writes the same
    slots and draws the same tokens.
    """

    def __init__(
        self,
        weights: LlamaWeights,
        config: ModelConfig,
        *,
        num_blocks: int,
        block_size: int,
        num_host_blocks: int = 0,
    ) -> None:
        self._weights = weights
        self._config = config
        self._capacity = Capacity(num_blocks=num_blocks, block_size=block_size, num_host_blocks=num_host_blocks)
        self._frequencies = rope_frequencies(config.head_dim, config.rope_base, config.rope_scaling)
        self._rotate = kernels.rope_interleaved if config.rope_pairs == "interleaved" else kernels.rope_half_split
        shape = (config.num_layers, block_size, config.num_kv_heads, config.head_dim)
        self.cache = PagedCache(shape, num_blocks, num_host_blocks)

    def capacity(self) -> Capacity:
        """Blocks of the pool and of the host tier; one batch at a time."""
        return self._capacity

    def launch(self, batch: Batch) -> Finished:
        """Do the batch's copies and the whole step; what came of it waits in the returned object."""
        return run_at_once(self, batch, self._run)

    def swap_out(self, pairs: list[BlockPair]) -> None:
        """Copy device blocks to host blocks: pairs of (device, host)."""
        self.cache.swap_out(pairs)

    def swap_in(self, pairs: list[BlockPair]) -> None:
        """Copy host blocks to device blocks: pairs of (host, device)."""
        self.cache.swap_in(pairs)

    def copy_blocks(self, pairs: list[BlockPair]) -> None:
        """Copy device blocks onto device blocks: pairs of (from, to), one after the other."""
        self.cache.copy(pairs)

    def release(self, seq_ids: list[str]) -> None:
        """Nothing is kept between steps but the cache."""

    def close(self) -> None:
        """Drop the cache; no step may be launched afterwards."""
        self.cache = PagedCache((0, 0, 0, 0), 0, 0)

    def logits(self, batch: Batch) -> Array:
        """Logits [T, V] of every row of the lanes, in their order: for tests and measurements. Writes the cache too."""
        packed = pack(batch, self._capacity.block_size)
        hidden_TM = self._hidden(packed)
        return kernels.linear(hidden_TM[: packed.cu_seqlens_S1[-1]], self._weights.lm_head_VD)

    def _run(self, batch: Batch) -> StepResult:
        packed = pack(batch, self._capacity.block_size)
        if not len(packed.token_ids_T):
            return StepResult()
        with np.errstate(invalid="ignore", over="ignore"):  # what is not finite is found where tokens are drawn
            hidden_TM = self._hidden(packed)
            logits_RV = kernels.linear(hidden_TM[packed.draw_rows_R], self._weights.lm_head_VD)
            tokens = sample(packed.draws, packed.logit_rows, logits_RV)
            scores = {scored.seq_id: self._score(scored, hidden_TM) for scored in packed.scored}
        return StepResult({draw.seq_id: [token] for draw, token in zip(packed.draws, tokens, strict=True)}, scores)

    def _hidden(self, packed: Packed) -> Array:
        """The last layer's output behind the final norm, [T, M]."""
        weights, eps = self._weights, self._config.norm_eps
        angles = kernels.rope_angles(packed.positions_T, self._frequencies)
        x_TM = weights.embedding_VD[packed.token_ids_T]
        for index, layer in enumerate(weights.layers):
            x_TM = x_TM + self._attention(index, kernels.rms_norm(x_TM, layer.attn_norm_D, eps), packed, angles)
            x_TM = x_TM + _feed_forward(layer, kernels.rms_norm(x_TM, layer.ffn_norm_D, eps))
        return kernels.rms_norm(x_TM, weights.norm_D, eps)

    def _attention(self, index: int, x_TM: Array, packed: Packed, angles: tuple[Array, Array]) -> Array:
        layer = self._weights.layers[index]
        keys, values = self.cache.keys_LBPKD[index], self.cache.values_LBPKD[index]
        k_TKD = self._heads(x_TM, layer.k_KD, layer.k_bias_K, layer.k_norm_H)
        kernels.write_kv(keys, self._rotate(k_TKD, *angles), packed.slots_T)
        kernels.write_kv(values, self._heads(x_TM, layer.v_KD, layer.v_bias_K), packed.slots_T)
        q_THD = self._rotate(self._heads(x_TM, layer.q_QD, layer.q_bias_Q, layer.q_norm_H), *angles)
        rows = (packed.cu_seqlens_S1, packed.context_S, packed.block_tables_SB)
        out_THD = kernels.paged_attention(q_THD, keys, values, *rows)
        return kernels.linear(out_THD.reshape(len(x_TM), -1), layer.o_DQ)

    def _heads(self, x_TM: Array, weight_NM: Array, bias_N: Array | None, norm_D: Array | None = None) -> Array:
        """One projection cut into heads, [T, heads, D], with the bias and the norm of each head that the model has."""
        out_TN = kernels.linear(x_TM, weight_NM)
        if bias_N is not None:
            out_TN += bias_N
        out_THD = out_TN.reshape(len(x_TM), -1, self._config.head_dim)
        return out_THD if norm_D is None else kernels.rms_norm(out_THD, norm_D, self._config.norm_eps)

    def _score(self, scored: Scored, hidden_TM: Array) -> list[Logprobs]:
        """Log probabilities of the known next tokens of a lane's prompt rows."""
        found: list[Logprobs] = []
        for first in range(0, len(scored.target_ids), _SCORED_TILE):
            target_ids = scored.target_ids[first : first + _SCORED_TILE]
            row = scored.first_row + first
            logits_RV = kernels.linear(hidden_TM[row : row + len(target_ids)], self._weights.lm_head_VD)
            if not np.isfinite(logits_RV.max(axis=1)).all():
                raise ExecutorFault(
                    f"the model computed no usable logits for the prompt of {scored.seq_id}", seq_ids=(scored.seq_id,)
                )
            found += [
                score(logits_V, token_id, scored.num_top)
                for logits_V, token_id in zip(logits_RV, target_ids, strict=True)
            ]
        return found


def _feed_forward(layer: LayerWeights, x_TM: Array) -> Array:
    gated_TN = kernels.swiglu(kernels.linear(x_TM, layer.gate_FD), kernels.linear(x_TM, layer.up_FD))
    return kernels.linear(gated_TN, layer.down_DF)
