"""Engines without a model: the real scheduler, core and loop over a device that only tells the time."""

import threading
import time
from functools import cache

from headway.clock import VirtualClock
from headway.engine import Engine, EngineConfig, EngineCore
from headway.engine.door import Door
from headway.engine.limits import resolve_limits
from headway.engine.text import TextStage
from headway.executor.registry import Compute
from headway.executor.simulated import SimulatedExecutor
from headway.kv import KVCache, make_prefix_cache
from headway.models import ChatPrompts, ChatTemplate, Tokenizer
from headway.sched import Scheduler, make_policy
from tests.support.tiny_model import tiny_config, tiny_tokenizer_spec


class Gate:
    """An executor that waits for permission before each step, so that a test can look in between."""

    def __init__(self, inner):
        self._inner = inner
        self._permits = threading.Semaphore(0)
        self.open = False
        self.launched = threading.Semaphore(0)

    def let_through(self, num_steps=1):
        self._permits.release(num_steps)

    def open_for_good(self):
        self.open = True
        self._permits.release(1)

    def launch(self, batch):
        self.launched.release()
        if not self.open:
            assert self._permits.acquire(timeout=30), "a gated step was never let through"
        return self._inner.launch(batch)

    def __getattr__(self, name):
        return getattr(self._inner, name)


class Paced:
    """An executor whose steps take a moment of real time, so that somebody can watch or come in between."""

    def __init__(self, inner, step_s):
        self._inner, self._step_s = inner, step_s

    def launch(self, batch):
        time.sleep(self._step_s)
        return self._inner.launch(batch)

    def __getattr__(self, name):
        return getattr(self._inner, name)


class Faulty:
    """An executor whose steps fail when the test says so: `plan(batch)` returns an exception to raise, or None."""

    def __init__(self, inner, plan):
        self._inner, self._plan = inner, plan

    def launch(self, batch):
        if (fault := self._plan(batch)) is not None:
            raise fault
        return self._inner.launch(batch)

    def __getattr__(self, name):
        return getattr(self._inner, name)


@cache
def _texts():
    """Tokenizer and template: they hold no state, and take longer to make than all the rest of an engine."""
    template = "{% for message in messages %}{{ message['role'] }}: {{ message['content'] }}\n{% endfor %}assistant:"
    return Tokenizer(tiny_tokenizer_spec()), ChatTemplate(template)


def simulated_engine(*, lengths=None, wrap=lambda executor: executor, context=512, **settings):
    """An `Engine` like the real one's, with tokens made up. `lengths` are output tokens by request id."""
    config = EngineConfig(
        **{"num_blocks": 64, "block_size": 4, "executor": "simulated", "policy": "vllm", "seed": 1, **settings}
    )
    policy = make_policy(config.policy, config.policy_settings, config.policy_defaults())
    model = tiny_config()
    limits = resolve_limits(config, policy.limits(), context_length=context, token_bytes=1, free_bytes=1 << 30)
    clock = VirtualClock()
    executor = wrap(
        SimulatedExecutor(
            limits.num_blocks,
            limits.block_size,
            clock,
            lambda batch: 0.01,
            lengths or {},
            num_host_blocks=limits.num_host_blocks,
            vocab_size=model.vocab_size,
        )
    )
    tokenizer, template = _texts()
    prefix_cache = make_prefix_cache(config.prefix_cache, limits.block_size)
    kv = KVCache(limits.num_blocks, limits.block_size, prefix_cache, limits.num_host_blocks)
    text = TextStage(tokenizer)
    return Engine(
        name="made-up",
        config=config,
        core=EngineCore(Scheduler(policy, kv, text, name=config.policy), executor, clock),
        clock=clock,
        text=text,
        door=Door(limits, vocab_size=model.vocab_size, eos_ids=tokenizer.eos_ids, encode=tokenizer.encode_text, seed=1),
        tokenizer=tokenizer,
        prompts=ChatPrompts(tokenizer, template),
        model=model,
        limits=limits,
        compute=Compute(weights="none", kv_dtype="none", kernels="none", threads=None, weight_bytes=0),
    )
