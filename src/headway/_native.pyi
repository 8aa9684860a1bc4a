# The compiled module; `headway.kernels.native` documents what it does.

import enum
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float32]
Ints: TypeAlias = NDArray[np.int32]

def built_kernel_sets() -> list[str]: ...
def runnable_kernel_sets() -> list[str]: ...
def block_bytes(config: ModelConfig, dtype: str, block_size: int) -> int: ...

class RopePairs(enum.Enum):
    HALF_SPLIT = 0
    INTERLEAVED = 1

class ModelConfig:
    vocab_size: int
    hidden_size: int
    ffn_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    norm_eps: float
    rope_frequencies: list[float]
    rope_pairs: RopePairs
    tied_embeddings: bool
    qkv_bias: bool
    qk_norm: bool

class KvCache:
    @property
    def block_bytes(self) -> int: ...
    def copy(self, from_to: list[tuple[int, int]]) -> None: ...
    def swap_out(self, device_host: list[tuple[int, int]]) -> None: ...
    def swap_in(self, host_device: list[tuple[int, int]]) -> None: ...
    def poison(self, block_ids: list[int]) -> None: ...

class Model:
    def __init__(self, config: ModelConfig, *, weights: str, kernel_set: str, num_threads: int) -> None: ...
    @property
    def kernel_set(self) -> str: ...
    @property
    def num_threads(self) -> int: ...
    @property
    def weight_bytes(self) -> int: ...
    def set_tensor(self, name: str, layer: int, values: Floats) -> None: ...
    def finish(self) -> None: ...
    def new_cache(self, *, dtype: str, block_size: int, num_blocks: int, num_host_blocks: int = 0) -> KvCache: ...
    def run(
        self,
        cache: KvCache,
        *,
        token_ids: Ints,
        cu_seqlens: Ints,
        contexts: Ints,
        block_tables: Ints,
        needed_rows: Ints,
        logits: Floats,
        best: Ints,
    ) -> None: ...
    def logits(self, first: int, logits: Floats, best: Ints) -> None: ...

# Single operations, for parity tests; every result goes into the last array.
class Ops:
    def __init__(self, kernel_set: str) -> None: ...
    def act_levels(self, num_inputs: int) -> int: ...
    def linear(
        self, x: Floats, weight: Floats, bias: Floats, quantized: bool, rows_at_once: int, out: Floats
    ) -> None: ...
    def rms_norm(self, x: Floats, weight: Floats, eps: float, out: Floats) -> None: ...
    def quantize(self, x: Floats, levels: int, out: Floats) -> None: ...
    def rms_norm_quantize(self, x: Floats, eps: float, levels: int, out: Floats) -> None: ...
    def silu_mul(self, gate_up: Floats, out: Floats) -> None: ...
    def silu_mul_quantize(self, gate_up: Floats, hadamard: int, levels: int, out: Floats) -> None: ...
    def attention(
        self,
        q: Floats,
        k: Floats,
        v: Floats,
        block_table: Ints,
        num_blocks: int,
        block_size: int,
        dtype: int,
        rows_at_once: int,
        out: Floats,
    ) -> None: ...
    def argmax(self, x: Floats) -> int: ...
