"""The weights of a model as float32 arrays.

Letters in names: V vocabulary, D hidden size, Q features of all query heads, K features of all key (or value) heads,
H features of one head, F feed-forward size. A matrix is stored outputs first, so a layer computes `x_TD @ q_QD.T`.

**Rotary positions.** Rows of queries and keys stay as the file has them: `config.rope_pairs` says which features of a
head turn together.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headway.models.config import ModelConfig
from headway.models.layout import layer_shapes
from headway.models.model_file import ModelFile, finite_tensor

Array = NDArray[np.float32]
Progress = Callable[[int, int], None]  # steps done, steps in all

_FIELDS = {  # short name in `models.layout` -> field
    "attn_norm": "attn_norm_D",
    "q": "q_QD",
    "k": "k_KD",
    "v": "v_KD",
    "q_bias": "q_bias_Q",
    "k_bias": "k_bias_K",
    "v_bias": "v_bias_K",
    "q_norm": "q_norm_H",
    "k_norm": "k_norm_H",
    "o": "o_DQ",
    "ffn_norm": "ffn_norm_D",
    "gate": "gate_FD",
    "up": "up_FD",
    "down": "down_DF",
}


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class LayerWeights:
    """One transformer layer, float32. Biases and norms of heads are None in models that have none."""

    attn_norm_D: Array
    q_QD: Array
    k_KD: Array
    v_KD: Array
    o_DQ: Array
    ffn_norm_D: Array
    gate_FD: Array
    up_FD: Array
    down_DF: Array
    q_bias_Q: Array | None = None
    k_bias_K: Array | None = None
    v_bias_K: Array | None = None
    q_norm_H: Array | None = None
    k_norm_H: Array | None = None

    @classmethod
    def of(cls, named: dict[str, Array]) -> LayerWeights:
        """A layer from arrays by their names in `models.layout`."""
        return cls(**{_FIELDS[name]: array for name, array in named.items()})

    def named(self) -> dict[str, Array]:
        """The layer's arrays by their names in `models.layout`, those it has."""
        found = {name: getattr(self, field) for name, field in _FIELDS.items()}
        return {name: array for name, array in found.items() if array is not None}


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class LlamaWeights:
    """A whole model, float32. `lm_head_VD` is the very same array as `embedding_VD` when the model ties them."""

    config: ModelConfig
    embedding_VD: Array
    layers: tuple[LayerWeights, ...]
    norm_D: Array
    lm_head_VD: Array


def load_weights(file: ModelFile, progress: Progress | None = None) -> LlamaWeights:
    """All weights of an opened file, converted one tensor at a time.

    `progress(done, total)` is called after each layer. Raises BadModelFile if a weight is not a finite number.
    """
    config = file.config
    total = config.num_layers + 1
    embedding_VD = finite_tensor(file, "embedding")
    layers = []
    for index in range(config.num_layers):
        layers.append(LayerWeights.of({name: finite_tensor(file, name, index) for name in layer_shapes(config)}))
        if progress:
            progress(index + 1, total)
    weights = LlamaWeights(
        config=config,
        embedding_VD=embedding_VD,
        layers=tuple(layers),
        norm_D=finite_tensor(file, "norm"),
        lm_head_VD=embedding_VD if config.tied_embeddings else finite_tensor(file, "head"),
    )
    if progress:
        progress(total, total)
    return weights


def random_weights(config: ModelConfig, seed: int) -> LlamaWeights:
    """Weights for tests and measurements: normal numbers, scaled so that activations stay near 1.

    The same seed gives the same weights.
    """
    rng = np.random.default_rng(seed)

    def draw(name: str, shape: tuple[int, ...]) -> Array:
        numbers = rng.standard_normal(shape, np.float32)
        if name.endswith("norm"):
            return np.float32(1.0) + np.float32(0.1) * numbers
        return numbers * np.float32(0.5 if name.endswith("bias") else shape[-1] ** -0.5)

    vocab_shape = (config.vocab_size, config.hidden_size)
    embedding_VD = draw("embedding", vocab_shape)
    layers = tuple(
        LayerWeights.of({name: draw(name, shape) for name, shape in layer_shapes(config).items()})
        for _ in range(config.num_layers)
    )
    return LlamaWeights(
        config=config,
        embedding_VD=embedding_VD,
        layers=layers,
        norm_D=draw("norm", (config.hidden_size,)),
        lm_head_VD=embedding_VD if config.tied_embeddings else draw("head", vocab_shape),
    )
