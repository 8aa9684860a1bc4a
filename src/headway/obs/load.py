"""The engine's snapshot, as far as watchers read it."""

from __future__ import annotations

from typing import Protocol


class Load(Protocol):
    """Requests in the engine and totals since its start; `engine.outputs.EngineStats` is one."""

    @property
    def num_running(self) -> int: ...

    @property
    def num_waiting(self) -> int: ...

    @property
    def num_swapped(self) -> int: ...

    @property
    def kv_usage(self) -> float: ...

    @property
    def block_size(self) -> int: ...

    @property
    def num_blocks(self) -> int: ...

    @property
    def num_prompt_tokens(self) -> int: ...

    @property
    def num_cached_tokens(self) -> int: ...

    @property
    def num_output_tokens(self) -> int: ...
