"""Tiny native models beside their reference, for tests of the compiled executor."""

from __future__ import annotations

from headway.executor.native import NativeExecutor
from headway.executor.native_loader import fill_from_weights, native_config
from headway.kernels.native import NativeModel
from headway.models import LlamaWeights


def native_model(
    weights: LlamaWeights, *, form: str = "float32", kernel_set: str = "auto", num_threads: int = 1
) -> NativeModel:
    """A finished model of these weights."""
    config = native_config(weights.config)
    model = NativeModel(config, weights=form, kernel_set=kernel_set, num_threads=num_threads)
    fill_from_weights(model, weights)
    return model


def native_executor(
    model: NativeModel,
    *,
    kv_dtype: str = "float32",
    num_blocks: int = 64,
    block_size: int = 16,
    num_host_blocks: int = 0,
) -> NativeExecutor:
    """An executor whose every slot holds NaN."""
    executor = NativeExecutor(
        model, kv_dtype=kv_dtype, num_blocks=num_blocks, block_size=block_size, num_host_blocks=num_host_blocks
    )
    executor.cache.poison(list(range(num_blocks)))
    return executor
