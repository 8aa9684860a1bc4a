"""What is promised at the start is there, what is there can be used, and nothing grows."""

import gc
import random
import tracemalloc
import types

import numpy as np
import pytest

from headway.core import Batch, FinishReason, Lane, SamplingParams, Sequence
from headway.engine import EngineConfig
from headway.engine.limits import resolve_limits
from headway.errors import BadSetting, ExecutorFault
from headway.executor.reference import ReferenceExecutor
from headway.kv import HashedPrefixCache, Hit, KVCache, RadixPrefixCache
from headway.models import random_weights
from headway.sched import POLICIES, PlanLimits
from tests.support.storm import Storm
from tests.support.tiny_model import tiny_config
from tests.support.trial import Trial, own_ids


def resolve(context=8192, token_bytes=1000, free_bytes=1 << 40, **settings):
    config = EngineConfig(**settings)
    return resolve_limits(config, PlanLimits(), context_length=context, token_bytes=token_bytes, free_bytes=free_bytes)


def test_the_context_that_just_fits():
    """PUBLIC_ISSUES 12.1: N blocks of B hold a context of N·B, and refuse one more, naming both and what to do."""
    assert resolve(num_blocks=20, max_model_len=320).max_model_len == 320
    with pytest.raises(BadSetting, match=r"321.*320.*num_blocks"):
        resolve(num_blocks=20, max_model_len=321)
    assert resolve(num_blocks=20).lowered_from == 8192


def test_a_smaller_context_never_needs_more():
    """PUBLIC_ISSUES 12.2: what starts with a context starts with every smaller one, over the same blocks."""
    pools = {resolve(context=context, free_bytes=10**7).num_blocks for context in range(64, 4096, 64)}
    assert len(pools) == 1


@pytest.mark.parametrize("max_num_seqs", [1, 4, 64])
def test_places_do_not_divide_the_context(max_num_seqs):
    """PUBLIC_ISSUES 12.3: one may have all that is promised, however many may run."""
    trial = Trial(num_blocks=30, max_num_seqs=max_num_seqs, block_size=4)
    assert trial.engine.limits.max_model_len == 120
    trial.submit("x", 100, 20)
    trial.finish()


@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_four_that_together_outgrow_the_pool(policy):
    """PUBLIC_ISSUES 12.4: together they need half as much again as there is: all four end, with the right tokens."""
    settings = {"overflow": "0"} if policy == "headway" else {}
    trial = Trial(policy=policy, policy_settings=settings, num_blocks=40, max_num_batched_tokens=512)
    for at in range(4):
        trial.submit(f"r{at}", 12, 48)
    trial.finish()
    assert set(trial.reasons.values()) == {FinishReason.LENGTH}
    if policy in {"vllm", "headway", "vllm_v0", "sarathi_serve", "lmdeploy", "vtc"}:
        assert sum(trial.num_preemptions.values())


@pytest.mark.parametrize("prefix", [HashedPrefixCache, RadixPrefixCache])
def test_any_free_block_serves(prefix):
    """PUBLIC_ISSUES 12.5: after thousands of admissions and releases, one that needs exactly all blocks has them."""
    rng = random.Random(3)
    kv = KVCache(64, 4, prefix(4))
    living = []
    for name in map(str, range(3000)):
        tokens = [rng.randrange(3) for _ in range(rng.randint(1, 60))]
        while kv.num_free < kv.blocks_for(len(tokens)) or (living and rng.random() < 0.4):
            kv.release(living.pop(rng.randrange(len(living))))
        hit = kv.match(tokens, "")
        kv.admit(name, hit)
        kv.extend(name, hit.num_tokens, len(tokens))
        kv.publish(name, tokens, len(tokens), "")
        living.append(name)
    for name in living:
        kv.release(name)
    kv.check()
    kv.admit("all", Hit.EMPTY)
    kv.extend("all", 0, 256)
    assert kv.num_free == 0


@pytest.mark.parametrize("token_bytes", [1, 512, 4608, 23_040])
@pytest.mark.parametrize("block_size", [1, 16, 33])
def test_blocks_fill_the_budget(token_bytes, block_size):
    """PUBLIC_ISSUES 12.6: blocks times their bytes are within the budget, and one more would not be."""
    budget = 1_000_003 * 16
    limits = resolve(kv_cache_memory=budget, token_bytes=token_bytes, block_size=block_size)
    block_bytes = token_bytes * block_size
    assert limits.num_blocks * block_bytes <= budget < (limits.num_blocks + 1) * block_bytes
    assert limits.kv_bytes == limits.num_blocks * block_bytes


def test_the_reference_cache_takes_what_was_reckoned(tiny):
    """PUBLIC_ISSUES 12.6: bytes of keys and values are those that the start-up check counted."""
    engine = tiny(num_blocks=50, block_size=16).engine
    cache = engine.core.executor.cache
    assert cache.keys_LBPKD.nbytes + cache.values_LBPKD.nbytes == engine.limits.kv_bytes


def test_a_step_without_memory_costs_its_requests_only(tiny, monkeypatch):
    """PUBLIC_ISSUES 12.8: a MemoryError in a step ends that step's requests; the next ones are served."""
    llm = tiny()
    params = SamplingParams(temperature=0.0, max_tokens=5, ignore_eos=True)
    expected = llm.generate([own_ids("x", 20)], params)[0].choices[0].token_ids
    executor = llm.engine.core.executor
    with monkeypatch.context() as patch:
        patch.setattr(executor, "_hidden", _no_memory)
        with pytest.raises(ExecutorFault):
            llm.generate([own_ids("x", 20), own_ids("y", 9)], params)
    llm.engine.core.check()
    assert llm.engine.core.scheduler.kv.num_free == 200
    assert llm.generate([own_ids("x", 20)], params)[0].choices[0].token_ids == expected


def _no_memory(_):
    raise MemoryError


def test_scoring_a_long_prompt_keeps_few_logits():
    """PUBLIC_ISSUES 12.9: 512 rows by 20,000 words would be 41 MB; a tile of them at a time stays below half."""
    config = tiny_config(vocab_size=20_000)
    executor = ReferenceExecutor(random_weights(config, 0), config, num_blocks=40, block_size=16)
    lane = Lane("x", np.random.default_rng(0).integers(0, 20_000, 512).tolist(), 0, list(range(32)), prompt_logprobs=1)
    tracemalloc.start()
    result = executor.launch(Batch(0, [lane])).result()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(result.prompt_logprobs["x"]) == 511
    assert peak < 512 * 20_000 * 4 / 2


def reachable(root):
    """Everything that an object keeps alive, itself included; types and modules apart."""
    seen, left = set(), [root]
    while left:
        thing = left.pop()
        if id(thing) in seen or isinstance(thing, (type, types.ModuleType, types.FunctionType, types.CodeType)):
            continue
        seen.add(id(thing))
        yield thing
        left += gc.get_referents(thing)


def mentions(root, names):
    """Whether sequences, or ids of these requests, are kept somewhere below an object."""
    return any(
        isinstance(thing, Sequence) or (isinstance(thing, str) and thing.split("/")[0] in names)
        for thing in reachable(root)
    )


@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_nothing_remembers_a_request_that_is_over(policy):
    """PUBLIC_ISSUES 12.10, 1.6: after a storm, neither policy nor queues nor memory know of any request."""
    storm = Storm(7, policy=policy)
    trial = storm.trial
    trial.submit("living", 3, 2)
    trial.step()
    assert mentions(trial.core.scheduler, {"living"}), "the search finds nothing: this test is worth nothing"
    storm.run(num_moves=80)
    scheduler = trial.core.scheduler
    names = set(trial.requests)
    for part in (scheduler.policy, scheduler.queues, scheduler.kv, scheduler._stepper):
        assert not mentions(part, names), f"{type(part).__name__} remembers"
