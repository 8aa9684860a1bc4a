"""Loaders: from a model file to an executor."""

from __future__ import annotations

from headway.errors import BadSetting
from headway.executor.reference import ReferenceExecutor
from headway.executor.registry import Compute, ExecutorOptions, PoolSize, Progress
from headway.models import ModelConfig, ModelFile, load_weights


class ReferenceLoader:
    """The NumPy executor: float32 weights and KV; threads are the matrix library's own business."""

    weights = kv_dtype = "float32"
    kernels = "numpy"

    def __init__(self, options: ExecutorOptions) -> None:
        """Raise `BadSetting` for a format or kernel set other than its only one."""
        for flag, wanted, only in (
            ("weights", options.weights, self.weights),
            ("kv-dtype", options.kv_dtype, self.kv_dtype),
            ("kernels", options.kernels, self.kernels),
        ):
            if wanted not in (None, only):
                raise BadSetting(f"--{flag} is {wanted!r}, but executor 'reference' has {only} alone")
        self.threads = options.threads

    def compute(self, model: ModelConfig) -> Compute:
        """Float32 throughout."""
        return Compute(
            weights=self.weights,
            kv_dtype=self.kv_dtype,
            kernels=self.kernels,
            threads=self.threads,
            weight_bytes=4 * model.num_params,
        )

    def token_bytes(self, model: ModelConfig) -> int:
        """Bytes of keys and values of one token over all layers."""
        return 2 * model.num_layers * model.num_kv_heads * model.head_dim * 4

    def load(self, file: ModelFile, pool: PoolSize, progress: Progress | None = None) -> ReferenceExecutor:
        """Convert all weights to float32 and open the pool."""
        try:
            return ReferenceExecutor(
                load_weights(file, progress),
                file.config,
                num_blocks=pool.num_blocks,
                block_size=pool.block_size,
                num_host_blocks=pool.num_host_blocks,
            )
        except MemoryError as error:
            raise BadSetting(f"not enough memory for the weights and {pool.num_blocks} KV blocks") from error
