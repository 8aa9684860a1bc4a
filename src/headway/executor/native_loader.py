"""From a model file to the native executor, one tensor in memory at a time."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from headway.errors import BadSetting
from headway.executor.native import NativeExecutor
from headway.executor.registry import Compute, ExecutorOptions, PoolSize, Progress
from headway.kernels import native
from headway.models import LlamaWeights, ModelConfig, ModelFile, finite_tensor, layer_shapes, rope_frequencies

_ROPE_PAIRS = {"interleaved": native.RopePairs.INTERLEAVED, "half_split": native.RopePairs.HALF_SPLIT}


def native_config(model: ModelConfig) -> native.ModelConfig:
    """The shape of a model as the compiled code wants it."""
    config = native.ModelConfig()
    config.vocab_size = model.vocab_size
    config.hidden_size = model.hidden_size
    config.ffn_size = model.ffn_size
    config.num_layers = model.num_layers
    config.num_heads = model.num_heads
    config.num_kv_heads = model.num_kv_heads
    config.head_dim = model.head_dim
    config.norm_eps = model.norm_eps
    config.tied_embeddings = model.tied_embeddings
    config.qkv_bias = model.qkv_bias
    config.qk_norm = model.qk_norm
    config.rope_frequencies = rope_frequencies(model.head_dim, model.rope_base, model.rope_scaling).tolist()
    config.rope_pairs = _ROPE_PAIRS[model.rope_pairs]
    return config


def fill_from_file(model: native.NativeModel, file: ModelFile, progress: Progress | None = None) -> None:
    """Hand over every tensor of a file. `progress(done, total)` is called after each layer."""
    total = file.config.num_layers + 1
    model.set_tensor("norm", finite_tensor(file, "norm"))
    model.set_tensor("embedding", finite_tensor(file, "embedding"))
    if not file.config.tied_embeddings:
        model.set_tensor("head", finite_tensor(file, "head"))
    for layer in range(file.config.num_layers):
        if progress:
            progress(layer + 1, total)
        for name in layer_shapes(file.config):
            model.set_tensor(name, finite_tensor(file, name, layer), layer=layer)
    model.finish()
    if progress:
        progress(total, total)


def fill_from_weights(model: native.NativeModel, weights: LlamaWeights) -> None:
    """Hand over float32 weights that are in memory already."""
    model.set_tensor("norm", weights.norm_D)
    model.set_tensor("embedding", weights.embedding_VD)
    if not weights.config.tied_embeddings:
        model.set_tensor("head", weights.lm_head_VD)
    for index, layer in enumerate(weights.layers):
        for name, array in layer.named().items():
            model.set_tensor(name, array, layer=index)
    model.finish()


class NativeLoader:
    """The compiled executor: `weights` "int8" or "float32", `kv_dtype` "float16", "int8" or "float32"."""

    def __init__(self, options: ExecutorOptions) -> None:
        """Raise `BadSetting` for an unknown format or a kernel set that this processor lacks."""
        self.weights = _known("weights", options.weights or "int8", native.WEIGHT_FORMATS)
        self.kv_dtype = _known("kv-dtype", options.kv_dtype or "float16", native.KV_DTYPES)
        self.kernels = _known(
            "kernels", options.kernels or native.runnable_kernel_sets()[-1], native.runnable_kernel_sets()
        )
        self.threads = options.threads if options.threads is not None else physical_cores()

    def compute(self, model: ModelConfig) -> Compute:
        """What was chosen. A tied head is kept apart from the embedding, in the kernels' layout."""
        tied = model.vocab_size * model.hidden_size if model.tied_embeddings else 0
        return Compute(
            weights=self.weights,
            kv_dtype=self.kv_dtype,
            kernels=self.kernels,
            threads=self.threads,
            weight_bytes=(model.num_params + tied) * (1 if self.weights == "int8" else 4),
        )

    def token_bytes(self, model: ModelConfig) -> int:
        """Bytes of keys and values of one token over all layers."""
        return native.block_bytes(native_config(model), self.kv_dtype, 1)

    def load(self, file: ModelFile, pool: PoolSize, progress: Progress | None = None) -> NativeExecutor:
        """Take all weights in and open the pool."""
        try:
            model = native.NativeModel(
                native_config(file.config),
                weights=self.weights,
                kernel_set=self.kernels,
                num_threads=self.threads,
            )
            fill_from_file(model, file, progress)
            return NativeExecutor(
                model,
                kv_dtype=self.kv_dtype,
                num_blocks=pool.num_blocks,
                block_size=pool.block_size,
                num_host_blocks=pool.num_host_blocks,
            )
        except MemoryError as error:
            raise BadSetting(f"not enough memory for the weights and {pool.num_blocks} KV blocks") from error
        except (ValueError, RuntimeError) as error:
            raise BadSetting(str(error)) from error


def _known(flag: str, value: str, known: Sequence[str]) -> str:
    if value not in known:
        raise BadSetting(f"--{flag} is {value!r}; here: {', '.join(known)}")
    return value


def physical_cores() -> int:
    """Cores this process may use, two hardware threads of one core counted once."""
    allowed = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set(range(os.cpu_count() or 1))
    return len({_siblings(cpu) for cpu in allowed}) or 1


def _siblings(cpu: int) -> str:
    try:
        path = Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list")
        return path.read_text(encoding="ascii").strip()
    except OSError:
        return str(cpu)
