"""Start-up truth: what the pool can hold decides what is promised to clients."""

from __future__ import annotations

from dataclasses import dataclass, replace

from headway.engine.config import ALSO_CALLED, EngineConfig
from headway.errors import BadSetting
from headway.sched import PlanLimits, Policy, all_params, make_policy

DEFAULT_KV_SHARE = 0.25
DEFAULT_KV_MOST = 2 << 30
"""Without a size the KV cache takes a quarter of the free memory, at most 2 GiB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What this engine really holds. `max_model_len` counts prompt + output tokens of one sequence.

    `lowered_from` is the model's own context length where the pool, or the policy, made it shorter.
    """

    num_blocks: int
    block_size: int
    max_model_len: int
    max_num_seqs: int | None
    kv_bytes: int
    num_host_blocks: int = 0
    lowered_from: int | None = None

    @property
    def num_kv_tokens(self) -> int:
        """Tokens whose KV the pool can hold."""
        return self.num_blocks * self.block_size

    def narrowed(self, max_num_seqs: int | None) -> Limits:
        """The same with at most `max_num_seqs` sequences at once; None narrows nothing."""
        known = [most for most in (self.max_num_seqs, max_num_seqs) if most is not None]
        return replace(self, max_num_seqs=min(known, default=None))


def choose_policy(config: EngineConfig) -> Policy:
    """The policy with its parameters; a limit that it does not know is refused rather than ignored. `BadSetting`."""
    policy = make_policy(config.policy, config.policy_settings, config.policy_defaults())
    known = _params(config)
    for name in _unknown_limits(config):
        raise BadSetting(
            f"{name} is {config.wishes()[name]}, but policy {config.policy!r} has no such limit; leave it out "
            f"(a running server: {name}=0), or set one of its own: {', '.join(known)}"
        )
    return policy


def for_comparison(config: EngineConfig) -> EngineConfig:
    """The same without limits that its policy has under no name: where many policies run, a limit is for those it fits.

    Raises `BadSetting` for a policy or parameter that is not known.
    """
    return config.without(_unknown_limits(config))


def _params(config: EngineConfig) -> dict[str, object]:
    return all_params(config.policy, config.policy_settings, config.policy_defaults())


def _unknown_limits(config: EngineConfig) -> list[str]:
    known = _params(config).keys()
    return [name for name in config.wishes() if not known & {name, *ALSO_CALLED.get(name, ())}]


def resolve_limits(
    config: EngineConfig, plan_limits: PlanLimits, *, context_length: int, token_bytes: int, free_bytes: int
) -> Limits:
    """Size the pool and the context. `token_bytes` is the KV of one token, `free_bytes` the memory at hand.

    Raises `BadSetting` when the pool would hold nothing, when the memory is not there, or when a given
    `max_model_len` does not fit the model, the pool or the policy.
    """
    block_bytes = token_bytes * config.block_size
    host_bytes = config.host_memory or 0
    num_blocks = config.num_blocks
    if num_blocks is None:
        kv_bytes = config.kv_cache_memory or min(DEFAULT_KV_MOST, int(free_bytes * DEFAULT_KV_SHARE))
        num_blocks = kv_bytes // block_bytes
    if num_blocks < 1:
        raise BadSetting(f"the KV cache would hold no block: one takes {block_bytes:,} bytes; give it more memory")
    if num_blocks * block_bytes + host_bytes > free_bytes:
        raise BadSetting(
            f"the KV cache would take {num_blocks * block_bytes + host_bytes:,} bytes ({num_blocks} blocks and "
            f"the host tier), but only {free_bytes:,} bytes of memory are free; lower num_blocks, kv_cache_memory or "
            "host_memory"
        )
    usable = (num_blocks - int(config.watermark * num_blocks)) * config.block_size
    most = min(context_length, usable, plan_limits.max_total or context_length)
    if config.max_model_len is not None and config.max_model_len > most:
        raise BadSetting(_too_long(config.max_model_len, context_length, usable, plan_limits.max_total))
    if most < 2:
        raise BadSetting(f"a context of {most} token(s) holds no prompt and output; raise num_blocks or block_size")
    wanted = config.max_model_len or most
    return Limits(
        num_blocks=num_blocks,
        block_size=config.block_size,
        max_model_len=wanted,
        max_num_seqs=plan_limits.max_seqs,
        kv_bytes=num_blocks * block_bytes,
        num_host_blocks=host_bytes // block_bytes,
        lowered_from=context_length if config.max_model_len is None and most < context_length else None,
    )


def _too_long(wanted: int, context_length: int, usable: int, policy_most: int | None) -> str:
    if wanted > context_length:
        return f"max_model_len is {wanted}, but the model's context is {context_length} tokens"
    if wanted > usable:
        return (
            f"max_model_len is {wanted}, but the KV cache holds {usable} tokens for one sequence; "
            "lower it, or raise num_blocks or kv_cache_memory"
        )
    return f"max_model_len is {wanted}, but the policy can schedule at most {policy_most} tokens of one sequence"
