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


class Loader(Protocol):
    """Makes one kind of executor."""

    weights: str
    threads: int | None

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


def make_loader(name: str, *, threads: int | None = None) -> Loader:
    """The loader behind an executor's name. Raises `BadSetting` naming the known ones."""
    if name not in EXECUTORS:
        raise BadSetting(f"unknown executor {name!r}; known: {', '.join(EXECUTORS)}")
    module_name, _, class_name = EXECUTORS[name].partition(":")
    loader: Loader = getattr(importlib.import_module(module_name), class_name)(threads=threads)
    return loader
