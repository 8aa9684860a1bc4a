"""Executors that run a model file, by name; each is imported when it is asked for."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from headway.errors import BadSetting
from headway.executor.base import Executor
from headway.models import ModelConfig, ModelFile

Progress = Callable[[int, int], None]
"""Called with steps done and steps in all while weights are loaded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolSize:
    """Blocks on the device and in the host tier."""

    num_blocks: int
    block_size: int
    num_host_blocks: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutorOptions:
    """What a user may choose about an executor; None leaves it to the executor.

    `weights` and `kv_dtype` are number formats, `kernels` a set of compiled kernels.
    """

    threads: int | None = None
    weights: str | None = None
    kv_dtype: str | None = None
    kernels: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Compute:
    """What an executor settled on, for people: formats, kernels, threads, and the bytes of its weights."""

    weights: str
    kv_dtype: str
    kernels: str
    threads: int | None
    weight_bytes: int

    def bytes_left(self, free_bytes: int) -> int:
        """What the weights leave of the free memory. Raises `BadSetting` where they do not fit.

        The system would grant the memory all the same, and end the process while the weights are read.
        """
        if self.weight_bytes > free_bytes:
            way_out = "choose a smaller model" if self.weights == "int8" else "take --weights int8 or a smaller model"
            raise BadSetting(
                f"the weights take {self.weight_bytes:,} bytes as {self.weights}, but only {free_bytes:,} bytes of "
                f"memory are free; {way_out}"
            )
        return free_bytes - self.weight_bytes


class Loader(Protocol):
    """Makes one kind of executor, with one set of `kernels`."""

    kernels: str

    def compute(self, model: ModelConfig) -> Compute:
        """What it settled on for this model."""
        ...

    def token_bytes(self, model: ModelConfig) -> int:
        """Bytes of KV for one token."""
        ...

    def load(self, file: ModelFile, pool: PoolSize, progress: Progress | None = None) -> Executor:
        """Load the weights and take the memory. Raises `BadModelFile`, or `BadSetting` when memory is short."""
        ...


EXECUTORS = {
    "native": "headway.executor.native_loader:NativeLoader",
    "reference": "headway.executor.loaders:ReferenceLoader",
}


def make_loader(name: str, options: ExecutorOptions) -> Loader:
    """The loader behind an executor's name. Raises `BadSetting` naming the known ones, and for options it lacks."""
    if name not in EXECUTORS:
        raise BadSetting(f"unknown executor {name!r}; known: {', '.join(EXECUTORS)}")
    module_name, _, class_name = EXECUTORS[name].partition(":")
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        raise BadSetting(
            f"executor {name!r} is not built here ({error}); --executor reference needs no build"
        ) from error
    loader: Loader = getattr(module, class_name)(options)
    return loader
