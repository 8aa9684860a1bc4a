"""Invisible scheduling: under every policy a request's tokens and log probabilities are its solo run's, bit for bit."""

import random
from dataclasses import replace

import pytest

from headway.core import Preempted, PreemptMethod, SamplingParams
from headway.engine import LLM, EngineConfig, build_engine, for_comparison
from headway.engine.build import with_policy
from headway.sched import POLICIES

pytestmark = [pytest.mark.model, pytest.mark.native]

NUM_BLOCKS = 26
HOST_BYTES = 64 << 20

# `headway` without what depends on the clock: step after step it plans the same on any machine, so that the kinds of
# preemption that a run sees are facts and not chance.
TIMELESS = {"overflow": "0", "put_off_share": "0", "age_s": "0", "efficiency": "1", "shared_efficiency": "1"}
NUM_BLOCKS_FOR_PARTIAL = 18

# Policies as they are, and settings that force the kinds of preemption that a default avoids.
VARIANTS = [
    *((name, {}) for name in sorted(POLICIES)),
    ("headway", {"overflow": "0"}),
    ("headway", {"overflow": "0", "shortage_by_cost": "false"}),
    ("vllm_v0", {"preemption": "swap", "mode": "prefill_first"}),
    ("vllm_v0", {"preemption": "recompute", "mode": "chunked"}),
    ("sarathi_serve", {"guard": "false", "token_budget": "48"}),
    ("vllm", {"max_num_batched_tokens": "40"}),
    ("trtllm", {"capacity": "max_utilization"}),
    ("sglang", {"mixed_chunk": "true"}),
    ("static", {"variant": "early_return"}),
]


def requests(tokenizer, num_requests):
    """Mixed lengths, a prefix that several share, greedy and seeded draws, several choices of one prompt."""
    rng = random.Random(24)
    text = "The river ran past the mill, and the miller counted sacks of grain until the light was gone. " * 12
    ids = tokenizer.encode_text(text)
    prompts, params = [], []
    for number in range(num_requests):
        start = rng.randrange(60)
        own = ids[start : start + rng.choice([4, 17, 33, 90, 140])]
        prompts.append([*ids[:48], *own] if number % 3 == 0 else own)
        sampling = SamplingParams(temperature=0.0, max_tokens=rng.choice([4, 12, 24, 40]), logprobs=1, ignore_eos=True)
        if number % 4 == 1:
            sampling = replace(sampling, temperature=0.9, top_p=0.95, seed=number)
        if number == 6:
            sampling = replace(sampling, n=2, temperature=1.0, seed=6)
        params.append(sampling)
    return prompts, params


def outcome(generation):
    """Everything that must be equal to the last bit."""
    return [(choice.token_ids, [step.logprob for step in choice.logprobs]) for choice in generation.choices]


@pytest.fixture(scope="module", params=[10, pytest.param(24, marks=pytest.mark.slow)])
def num_requests(request):
    """A reduced form for every run; all 24 in the full one."""
    return request.param


def open_engine(model_path, **settings):
    config = EngineConfig(
        model=str(model_path),
        executor="native",
        num_blocks=NUM_BLOCKS,
        host_memory=HOST_BYTES,
        max_model_len=256,
        max_num_batched_tokens=256,
        max_num_seqs=16,
        threads=2,
        **settings,
    )
    return build_engine(config)


def solo_outcomes(engine, num_requests):
    """Each request alone, with nothing cached and the whole prompt in one step."""
    alone = LLM(engine=with_policy(engine, replace(engine.config, policy="vllm", prefix_cache="none")))
    prompts, params = requests(engine.tokenizer, num_requests)
    return [outcome(alone.generate(ids, one)[0]) for ids, one in zip(prompts, params, strict=True)]


def smaller_without_host_tier(engine):
    """The same engine over fewer blocks, where nobody can be swapped: `headway` then recomputes or takes tails away."""
    return replace(engine, limits=replace(engine.limits, num_host_blocks=0, num_blocks=NUM_BLOCKS_FOR_PARTIAL))


def run_together(engine, num_requests, policy, settings, **changes):
    """Outcomes under a policy, and the kinds of preemption that were seen; nothing is leaked."""
    config = replace(engine.config, policy=policy, policy_settings=settings, **changes)
    together = with_policy(engine, for_comparison(config))
    seen = set()
    together.core.listen(lambda events: seen.update(e.method for e in events if isinstance(e, Preempted)))
    got = [outcome(one) for one in LLM(engine=together).generate(*requests(engine.tokenizer, num_requests))]
    assert together.core.scheduler.kv.num_free == engine.limits.num_blocks
    return got, seen


@pytest.fixture(scope="module")
def engine(model_path, num_requests):
    engine = open_engine(model_path)
    yield engine
    engine.core.executor.close()


@pytest.fixture(scope="module")
def solo(engine, num_requests):
    return solo_outcomes(engine, num_requests)


@pytest.mark.parametrize(
    ("policy", "settings"), VARIANTS, ids=lambda part: part if isinstance(part, str) else "-".join(part.values())
)
def test_tokens_are_those_of_the_solo_run(engine, solo, num_requests, policy, settings):
    """Many requests in a pool that holds a few: same bits as alone, nothing leaked."""
    got, _ = run_together(engine, num_requests, policy, settings)
    assert got == solo


def test_every_kind_of_preemption_happened(engine, num_requests):
    """The variants above are worth something: recompute and swap do occur in them."""
    seen = set()
    for policy, settings in (
        ("vllm", {"max_num_batched_tokens": "40"}),
        ("vllm_v0", {"preemption": "swap", "mode": "prefill_first"}),
        ("headway", {"overflow": "0"}),
    ):
        seen |= run_together(engine, num_requests, policy, settings)[1]
    assert {PreemptMethod.RECOMPUTE, PreemptMethod.SWAP} <= seen


@pytest.mark.parametrize("prefix_cache", ["none", "hashed", "radix"])
def test_partial_preemption_changes_no_bit(engine, solo, num_requests, prefix_cache):
    """Without a host tier `headway` takes tail blocks away, whose tokens are computed again or found in the cache."""
    smaller = smaller_without_host_tier(engine)
    got, seen = run_together(smaller, num_requests, "headway", TIMELESS, prefix_cache=prefix_cache)
    assert got == solo
    assert PreemptMethod.PARTIAL in seen


@pytest.mark.slow  # the model is loaded once per pair, and float32 steps take four times as long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("weights", ["int8", "float32"])
@pytest.mark.parametrize("kv_dtype", ["float16", "int8", "float32"])
def test_every_format_keeps_the_promise(model_path, weights, kv_dtype):
    """Recompute, swap and partial preemption are invisible with all weights and caches."""
    engine = open_engine(model_path, weights=weights, kv_dtype=kv_dtype)
    solo, num_requests, kinds = solo_outcomes(engine, 24), 24, set()
    for host, policy, settings in (
        (engine, "vllm", {"max_num_batched_tokens": "40"}),
        (engine, "vllm_v0", {"preemption": "swap", "mode": "prefill_first"}),
        (smaller_without_host_tier(engine), "headway", TIMELESS),
    ):
        got, seen = run_together(host, num_requests, policy, settings)
        assert got == solo, policy
        kinds |= seen
    engine.core.executor.close()
    assert kinds == {PreemptMethod.RECOMPUTE, PreemptMethod.SWAP, PreemptMethod.PARTIAL}
