"""Settings of one engine: frozen, checked at birth, resolved against model and memory by `engine.build`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from headway.errors import BadSetting
from headway.executor.registry import ExecutorOptions

PREFIX_CACHES = ("hashed", "radix", "none")


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig:
    """What the user asked for. None means: decide from the model and this machine.

    `model` is a .gguf file, a folder, or a catalogue name (None: the default model). `kv_cache_memory` and
    `host_memory` (for swapped sequences) are in bytes. `watermark` is the share of all blocks kept free at
    admission, `kv_cache_utilization_limit` the share that admission may plan to fill. `max_num_prefill_tokens`
    bounds the prefill of a step apart from the whole budget, 0: not. `itl_target_ms` 0 sets no target.
    `policy_settings` are `--set` texts.
    """

    model: str | None = None
    executor: str = "native"
    weights: str | None = None
    kv_dtype: str | None = None
    kernels: str | None = None
    policy: str = "headway"
    policy_settings: Mapping[str, str] = field(default_factory=dict)
    max_num_seqs: int = 256
    max_num_batched_tokens: int = 512
    long_prefill_token_threshold: int = 0
    max_num_prefill_tokens: int = 0
    itl_target_ms: float = 0.0
    kv_cache_utilization_limit: float = 1.0
    max_model_len: int | None = None
    block_size: int = 16
    num_blocks: int | None = None
    kv_cache_memory: int | None = None
    host_memory: int | None = None
    watermark: float = 0.0
    prefix_cache: str = "hashed"
    seed: int | None = None
    threads: int | None = None

    def __post_init__(self) -> None:
        """Check each value by itself; what depends on the model is checked when it is known."""
        _whole("max_num_seqs", self.max_num_seqs, 1, 65_536)
        _whole("max_num_batched_tokens", self.max_num_batched_tokens, 1, 1 << 20)
        _whole("long_prefill_token_threshold", self.long_prefill_token_threshold, 0, 1 << 20)
        _whole("block_size", self.block_size, 1, 4096)
        _whole("max_num_prefill_tokens", self.max_num_prefill_tokens, 0, 1 << 20)
        if self.host_memory is not None:
            _whole("host_memory", self.host_memory, 0, 1 << 50)
        if self.max_model_len is not None:
            _whole("max_model_len", self.max_model_len, 2, 1 << 27)
        if self.num_blocks is not None:
            _whole("num_blocks", self.num_blocks, 1, 1 << 27)
        if self.kv_cache_memory is not None:
            _whole("kv_cache_memory", self.kv_cache_memory, 1, 1 << 50)
        if self.num_blocks is not None and self.kv_cache_memory is not None:
            raise BadSetting("num_blocks and kv_cache_memory both size the KV cache; give one of them")
        if self.threads is not None:
            _whole("threads", self.threads, 1, 1024)
        _between("watermark", self.watermark, 0.0, 0.9)
        _between("kv_cache_utilization_limit", self.kv_cache_utilization_limit, 0.05, 1.0)
        _between("itl_target_ms", self.itl_target_ms, 0.0, 1e6)
        if self.prefix_cache not in PREFIX_CACHES:
            raise BadSetting(f"prefix_cache is {self.prefix_cache!r}; it must be one of {', '.join(PREFIX_CACHES)}")

    def executor_options(self) -> ExecutorOptions:
        """What was chosen about the executor."""
        return ExecutorOptions(threads=self.threads, weights=self.weights, kv_dtype=self.kv_dtype, kernels=self.kernels)

    def policy_defaults(self) -> dict[str, object]:
        """The engine-wide limits, for policy parameters of the same names.

        One that was set goes by its names in other systems as well; one that was not leaves them their own defaults.
        """
        limits = {name: getattr(self, name) for name in _OFF}
        others = {other: value for name, value in self.wishes().items() for other in ALSO_CALLED.get(name, ())}
        return {**limits, **others}

    def wishes(self) -> dict[str, object]:
        """The limits that were set: a policy that has none of a limit's names must refuse it."""
        return {name: value for name, off in _OFF.items() if (value := getattr(self, name)) != off}

    def without(self, names: Iterable[str]) -> EngineConfig:
        """The same with these limits not set."""
        changes: dict[str, Any] = {name: _OFF[name] for name in names}
        return replace(self, **changes)


ALSO_CALLED = {
    "max_num_seqs": ("max_batch_size", "max_running_requests"),
    "max_num_batched_tokens": (
        "token_budget",  # Sarathi-Serve, DeepSpeed-FastGen
        "max_num_tokens",  # TensorRT-LLM
        "max_prefill_token_num",  # LMDeploy
        "max_batch_prefill_tokens",  # TGI
        "max_prefill_tokens",  # SGLang, prompts whole
        "chunked_prefill_size",  # SGLang, prompts cut
        "max_tokens_per_batch",  # FastServe
    ),
}
"""What other systems, and so the policies that copy them, call our limits."""

_OFF: dict[str, object] = {
    "max_num_seqs": 256,
    "max_num_batched_tokens": 512,
    "long_prefill_token_threshold": 0,
    "max_num_prefill_tokens": 0,
    "itl_target_ms": 0.0,
    "kv_cache_utilization_limit": 1.0,
    "watermark": 0.0,
}


def _between(name: str, value: float, low: float, high: float) -> None:
    if not low <= value <= high:
        raise BadSetting(f"{name} is {value}; it must be between {low:g} and {high:g}")


def _whole(name: str, value: int, low: int, high: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise BadSetting(f"{name} is {value}; it must be a whole number between {low} and {high}")
