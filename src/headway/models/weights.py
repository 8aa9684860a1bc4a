"""The weights of a Llama-type model as float32 arrays.

Letters in names: V vocabulary, D hidden size, Q features of all query heads, K features of all key (or value) heads,
F feed-forward size. A matrix is stored outputs first, so a layer computes `x_TD @ q_QD.T`.

**Rotary positions.** Rows of `q_QD` and `k_KD` are ordered so that rotary positions turn *neighbouring* features of a
head, pairs (0, 1), (2, 3), ...: pair i by the angle position * rope_base ** (-2 i / head_dim). This is how GGUF stores
Llama-type models. Hugging Face files order rows for pairs (i, i + head_dim / 2): a loader for them reorders both
matrices, so that an executor has one convention to know.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headway.errors import BadModelFile
from headway.models.config import ModelConfig
from headway.models.gguf_file import GgufFile

Array = NDArray[np.float32]
Progress = Callable[[int, int], None]  # steps done, steps in all


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class LayerWeights:
    """One transformer layer, float32."""

    attn_norm_D: Array
    q_QD: Array
    k_KD: Array
    v_KD: Array
    o_DQ: Array
    ffn_norm_D: Array
    gate_FD: Array
    up_FD: Array
    down_DF: Array


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class LlamaWeights:
    """A whole model, float32. `lm_head_VD` is the very same array as `embedding_VD` when the model ties them."""

    config: ModelConfig
    embedding_VD: Array
    layers: tuple[LayerWeights, ...]
    norm_D: Array
    lm_head_VD: Array


def load_weights(file: GgufFile, progress: Progress | None = None) -> LlamaWeights:
    """All weights of an opened file, converted one tensor at a time.

    `progress(done, total)` is called after each layer. Raises BadModelFile if a weight is not a finite number.
    """
    config = file.config
    total = config.num_layers + 1
    embedding_VD = finite_tensor(file, "token_embd.weight")
    layers = []
    for index in range(config.num_layers):
        layers.append(_load_layer(file, index))
        if progress:
            progress(index + 1, total)
    weights = LlamaWeights(
        config=config,
        embedding_VD=embedding_VD,
        layers=tuple(layers),
        norm_D=finite_tensor(file, "output_norm.weight"),
        lm_head_VD=embedding_VD if config.tied_embeddings else finite_tensor(file, "output.weight"),
    )
    if progress:
        progress(total, total)
    return weights


def _load_layer(file: GgufFile, index: int) -> LayerWeights:
    def read(name: str) -> Array:
        return finite_tensor(file, f"blk.{index}.{name}.weight")

    return LayerWeights(
        attn_norm_D=read("attn_norm"),
        q_QD=read("attn_q"),
        k_KD=read("attn_k"),
        v_KD=read("attn_v"),
        o_DQ=read("attn_output"),
        ffn_norm_D=read("ffn_norm"),
        gate_FD=read("ffn_gate"),
        up_FD=read("ffn_up"),
        down_DF=read("ffn_down"),
    )


def finite_tensor(file: GgufFile, name: str) -> Array:
    """One tensor as float32. Raises BadModelFile if it holds anything but finite numbers."""
    array = file.tensor(name)
    # The sum of squares is infinite or NaN if any element is (or is beyond all reason), and far cheaper than a mask.
    with np.errstate(all="ignore"):
        total = np.dot(array.reshape(-1), array.reshape(-1))
    if not np.isfinite(total):
        raise BadModelFile(
            f"{file.path}: tensor {name!r} holds numbers that are not finite or far too large; the file is damaged"
        )
    return array


def random_weights(config: ModelConfig, seed: int) -> LlamaWeights:
    """Weights for tests and measurements: normal numbers, scaled so that activations stay near 1.

    The same seed gives the same weights.
    """
    rng = np.random.default_rng(seed)

    def matrix(num_out: int, num_in: int) -> Array:
        return rng.standard_normal((num_out, num_in), np.float32) * np.float32(num_in**-0.5)

    def norm() -> Array:
        return np.float32(1.0) + np.float32(0.1) * rng.standard_normal(config.hidden_size, np.float32)

    hidden, query, kv, ffn = config.hidden_size, config.query_size, config.kv_size, config.ffn_size
    embedding_VD = matrix(config.vocab_size, hidden)
    layers = tuple(
        LayerWeights(
            attn_norm_D=norm(),
            q_QD=matrix(query, hidden),
            k_KD=matrix(kv, hidden),
            v_KD=matrix(kv, hidden),
            o_DQ=matrix(hidden, query),
            ffn_norm_D=norm(),
            gate_FD=matrix(ffn, hidden),
            up_FD=matrix(ffn, hidden),
            down_DF=matrix(hidden, ffn),
        )
        for _ in range(config.num_layers)
    )
    return LlamaWeights(
        config=config,
        embedding_VD=embedding_VD,
        layers=layers,
        norm_D=norm(),
        lm_head_VD=embedding_VD if config.tied_embeddings else matrix(config.vocab_size, hidden),
    )
