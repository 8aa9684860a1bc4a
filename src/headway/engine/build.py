"""From settings to a core that is ready to step."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from headway.clock import Clock, WallClock
from headway.engine.config import EngineConfig
from headway.engine.core import EngineCore
from headway.engine.door import Door
from headway.engine.limits import Limits, choose_policy, resolve_limits
from headway.engine.text import TextStage
from headway.executor.registry import Compute, PoolSize, make_loader
from headway.kv import KVCache, make_prefix_cache
from headway.models import ChatPrompts, ModelConfig, Tokenizer, open_model
from headway.sched import Scheduler

Progress = Callable[[str, int, int], None]
"""Called with a stage's name, its steps done and its steps in all."""


@dataclass(slots=True, kw_only=True)
class Engine:
    """A built engine: its core, and what is needed to talk to it."""

    name: str
    config: EngineConfig
    core: EngineCore
    clock: Clock
    text: TextStage
    door: Door
    tokenizer: Tokenizer
    prompts: ChatPrompts
    model: ModelConfig
    limits: Limits
    compute: Compute


def build_engine(config: EngineConfig, progress: Progress | None = None) -> Engine:
    """Load the model and put all parts together.

    Everything that can be refused is refused before weights are loaded. Raises `BadModelFile` and `BadSetting`.
    """
    policy = choose_policy(config)
    loader = make_loader(config.executor, config.executor_options())
    opened = open_model(config.model)
    file = opened.file
    limits = resolve_limits(
        config,
        policy.limits(),
        context_length=file.config.context_length,
        token_bytes=loader.token_bytes(file.config),
        free_bytes=loader.compute(file.config).bytes_left(free_memory()),
    )
    size = {"num_blocks": limits.num_blocks, "block_size": limits.block_size}
    pool = PoolSize(**size, num_host_blocks=limits.num_host_blocks)
    executor = loader.load(file, pool, partial(progress, "loading weights") if progress else None)
    prefix_cache = make_prefix_cache(config.prefix_cache, limits.block_size)
    kv = KVCache(**size, prefix=prefix_cache, num_host_blocks=limits.num_host_blocks)
    clock = WallClock()
    text = TextStage(opened.tokenizer)
    return Engine(
        name=opened.name,
        config=config,
        core=EngineCore(Scheduler(policy, kv, text, name=config.policy), executor, clock),
        clock=clock,
        text=text,
        door=_door(config, limits, opened.tokenizer, file.config.vocab_size),
        tokenizer=opened.tokenizer,
        prompts=opened.prompts,
        model=file.config,
        limits=limits,
        compute=loader.compute(file.config),
    )


def with_policy(engine: Engine, config: EngineConfig) -> Engine:
    """The same model, executor and memory under the policy of `config`, beginning with an empty KV cache.

    `config` may differ from the engine's in the policy and in limits of a step. The two engines share the executor:
    only one of them may have requests. Raises `BadSetting` as `build_engine` does.
    """
    policy = choose_policy(config)
    bounds, base = policy.limits(), engine.limits
    limits = replace(
        base,
        max_model_len=min(base.max_model_len, bounds.max_total or base.max_model_len),
        max_num_seqs=bounds.max_seqs,
    )
    kv = KVCache(
        num_blocks=base.num_blocks,
        block_size=base.block_size,
        prefix=make_prefix_cache(config.prefix_cache, base.block_size),
        num_host_blocks=base.num_host_blocks,
    )
    text = TextStage(engine.tokenizer)
    return replace(
        engine,
        config=config,
        core=EngineCore(Scheduler(policy, kv, text, name=config.policy), engine.core.executor, engine.clock),
        text=text,
        door=_door(config, limits, engine.tokenizer, engine.model.vocab_size),
        limits=limits,
    )


def scheduling_facts(engine: Engine) -> dict[str, object]:
    """What it takes to build the same scheduler again: the head of a decision log."""
    config, limits = engine.config, engine.limits
    return {
        "policy": config.policy,
        "settings": dict(config.policy_settings),
        "limits": config.policy_defaults(),
        "num_blocks": limits.num_blocks,
        "block_size": limits.block_size,
        "num_host_blocks": limits.num_host_blocks,
        "prefix_cache": config.prefix_cache,
    }


def _door(config: EngineConfig, limits: Limits, tokenizer: Tokenizer, vocab_size: int) -> Door:
    return Door(
        limits,
        vocab_size=vocab_size,
        eos_ids=tokenizer.eos_ids,
        encode=tokenizer.encode_text,
        seed=config.seed if config.seed is not None else secrets.randbits(63),
    )


def free_memory() -> int:
    """Bytes that can still be taken without swapping, from the kernel's own estimate where it gives one."""
    try:
        with Path("/proc/meminfo").open(encoding="ascii") as lines:
            for line in lines:
                if line.startswith("MemAvailable:"):
                    return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        pass
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES")
