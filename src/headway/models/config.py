"""What a model is, in numbers: everything an executor must know before it sees a weight."""

from __future__ import annotations

from dataclasses import dataclass

from headway.errors import BadModelFile
from headway.models.rope import RopePairs, RopeScaling, rope_frequencies

# Far above any model in use; a larger number in a file is damage, not a model.
_MOST = {
    "num_layers": 1_000,
    "hidden_size": 1 << 17,
    "num_heads": 1_024,
    "num_kv_heads": 1_024,
    "head_dim": 1_024,
    "ffn_size": 1 << 20,
    "vocab_size": 1 << 21,
    "context_length": 1 << 27,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    """The shape of a decoder-only transformer; every value is checked when the record is made.

    Sizes count elements, `context_length` counts tokens: where a model has a sliding window it is the window, because
    within it the window changes nothing. `rope_base` is theta; each head rotates all `head_dim` features. `qkv_bias`:
    queries, keys and values have biases. `qk_norm`: each head of queries and keys is normalised before it is rotated.
    `quantisation` describes the stored weights for people ("Q4_1, Q8_0, F32"); nothing depends on it.
    Raises BadModelFile when the numbers cannot belong to a model.
    """

    name: str
    architecture: str
    num_layers: int
    hidden_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    ffn_size: int
    vocab_size: int
    context_length: int
    rope_base: float = 10_000.0
    rope_scaling: RopeScaling | None = None
    rope_pairs: RopePairs = "interleaved"
    qkv_bias: bool = False
    qk_norm: bool = False
    norm_eps: float = 1e-5
    tied_embeddings: bool = False
    quantisation: str = "F32"

    def __post_init__(self) -> None:
        for field, most in _MOST.items():
            if not 1 <= getattr(self, field) <= most:
                raise BadModelFile(f"model {self.name!r}: {field} is {getattr(self, field)}, allowed are 1 to {most}")
        if self.num_heads % self.num_kv_heads:
            raise BadModelFile(
                f"model {self.name!r}: {self.num_heads} query heads are no multiple of {self.num_kv_heads} KV heads"
            )
        if self.head_dim % 2:
            raise BadModelFile(
                f"model {self.name!r}: head_dim is {self.head_dim}, rotary positions need an even number"
            )
        if not 0.0 < self.norm_eps < 1.0:  # written so that NaN is refused too
            raise BadModelFile(f"model {self.name!r}: norm_eps is {self.norm_eps}, allowed is between 0 and 1")
        if not 1.0 < self.rope_base < 1e12:
            raise BadModelFile(f"model {self.name!r}: rope_base is {self.rope_base}, allowed is between 1 and 1e12")
        rope_frequencies(self.head_dim, self.rope_base, self.rope_scaling)  # refuses a scaling that does not fit

    @property
    def query_size(self) -> int:
        """Features of all query heads together."""
        return self.num_heads * self.head_dim

    @property
    def kv_size(self) -> int:
        """Features of all key heads together; values have as many."""
        return self.num_kv_heads * self.head_dim

    @property
    def num_params(self) -> int:
        """Weights of a Llama-type model of this shape; a tied embedding counts once."""
        attention = self.hidden_size * (2 * self.query_size + 2 * self.kv_size)
        extras = self.qkv_bias * (self.query_size + 2 * self.kv_size) + self.qk_norm * 2 * self.head_dim
        layer = attention + extras + 3 * self.hidden_size * self.ffn_size + 2 * self.hidden_size
        embeddings = self.vocab_size * self.hidden_size * (1 if self.tied_embeddings else 2)
        return embeddings + self.num_layers * layer + self.hidden_size
