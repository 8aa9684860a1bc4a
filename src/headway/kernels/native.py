"""A Llama-type model in compiled code: one call computes a whole step over a ragged batch.

What a row gets does not depend, in one bit, on the rows beside it, on how its sequence was cut into steps, on where
its blocks lie, on the block size or on the number of threads: sums have one order, or are exact, in every path.
Different kernel sets may differ from each other.

Names of arrays: T rows of the step, S lanes, S1 is S + 1, B blocks of the longest table, N rows whose logits may be
asked for, R rows with logits, V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headway._native import (
    KvCache,
    Model,
    ModelConfig,
    RopePairs,
    block_bytes,
    built_kernel_sets,
    product_peak,
    read_peak,
    runnable_kernel_sets,
    stage_names,
)

__all__ = [
    "KV_DTYPES",
    "WEIGHT_FORMATS",
    "KvCache",
    "Logits",
    "ModelConfig",
    "NativeModel",
    "RopePairs",
    "StepArrays",
    "block_bytes",
    "built_kernel_sets",
    "product_peak",
    "read_peak",
    "runnable_kernel_sets",
    "stage_names",
]

Array = NDArray[np.float32]
Ints = NDArray[np.int32]
Seconds = NDArray[np.float64]

WEIGHT_FORMATS = ("int8", "float32")
KV_DTYPES = ("float16", "int8", "float32")


@dataclass(frozen=True, slots=True, kw_only=True)
class StepArrays:
    """One step, all int32. Lane s owns rows cu_seqlens[s] to cu_seqlens[s + 1], the last of its `contexts_S[s]` tokens.

    Rows behind the last lane are computed and thrown away. Entries of `block_tables_SB` past a lane's last block are
    not read. `needed_rows_N` are the rows whose logits may be asked for.
    """

    token_ids_T: Ints
    cu_seqlens_S1: Ints
    contexts_S: Ints
    block_tables_SB: Ints
    needed_rows_N: Ints


@dataclass(frozen=True, slots=True)
class Logits:
    """Logits and the first index of each row's maximum; both are overwritten by the model's next call."""

    logits_RV: Array
    best_R: Ints


class NativeModel:
    """Weights, threads and workspace of one model.

    Tensors are handed over one at a time as float32 and kept as `weights` says: "int8" (one scale per output; the
    residual stream is rotated, so that activations need one scale per token) or "float32". Names and their order:

        norm, embedding, head (where not tied)
        per layer: attn_norm, q, k, v (q_bias, k_bias, v_bias) (q_norm, k_norm), o, ffn_norm, gate, up, down

    A norm must come before the matrices that read it. Raises ValueError for anything that cannot be (shapes, ids,
    positions, a kernel set this processor lacks), MemoryError, and RuntimeError when a thread cannot start; nothing has
    changed then.
    """

    def __init__(
        self, config: ModelConfig, *, weights: str = "int8", kernel_set: str = "auto", num_threads: int = 1
    ) -> None:
        self._model = Model(config, weights=weights, kernel_set=kernel_set, num_threads=num_threads)
        self._vocab_size = config.vocab_size
        self._logits_RV: Array = np.empty((0, config.vocab_size), np.float32)

    @property
    def kernel_set(self) -> str:
        """The name of the set in use."""
        return self._model.kernel_set

    @property
    def num_threads(self) -> int:
        """Threads that compute a step, the caller's included."""
        return self._model.num_threads

    @property
    def weight_bytes(self) -> int:
        """Memory of all matrices as they are kept."""
        return self._model.weight_bytes

    def set_tensor(self, name: str, array: Array, *, layer: int = -1) -> None:
        """Take one tensor; it is not kept, so its memory is free afterwards."""
        self._model.set_tensor(name, layer, np.ascontiguousarray(array, np.float32))

    def finish(self) -> None:
        """Call once after the last tensor. Raises ValueError when one is missing."""
        self._model.finish()

    def new_cache(self, *, dtype: str, block_size: int, num_blocks: int, num_host_blocks: int = 0) -> KvCache:
        """A paged cache for this model; its memory is taken from the system as blocks are first written."""
        return self._model.new_cache(
            dtype=dtype, block_size=block_size, num_blocks=num_blocks, num_host_blocks=num_host_blocks
        )

    def run(
        self, cache: KvCache, step: StepArrays, *, num_logits: int, stage_seconds_N: Seconds | None = None
    ) -> Logits:
        """Compute a step, write its keys and values, and give logits of the first `num_logits` needed rows.

        To `stage_seconds_N`, in the order of `stage_names()`, the time that each stage took is added; without it no
        clock is asked.
        """
        logits = self._room(num_logits)
        self._model.run(
            cache,
            token_ids=step.token_ids_T,
            cu_seqlens=step.cu_seqlens_S1,
            contexts=step.contexts_S,
            block_tables=step.block_tables_SB,
            needed_rows=step.needed_rows_N,
            logits=logits.logits_RV,
            best=logits.best_R,
            stage_seconds=stage_seconds_N,
        )
        return logits

    def logits(self, first: int, num_rows: int) -> Logits:
        """Logits of needed rows `first` to `first + num_rows` of the last step."""
        logits = self._room(num_rows)
        self._model.logits(first, logits.logits_RV, logits.best_R)
        return logits

    def _room(self, num_rows: int) -> Logits:
        # Kept between steps: fresh pages of a few megabytes would cost more than the arg max.
        if len(self._logits_RV) < num_rows:
            self._logits_RV = np.empty((num_rows, self._vocab_size), np.float32)
        return Logits(self._logits_RV[:num_rows], np.empty(num_rows, np.int32))
