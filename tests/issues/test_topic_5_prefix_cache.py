"""What is found in the prefix cache is what would have been computed, for everyone, always."""

from itertools import product

import pytest

from headway.core import FinishReason, SamplingParams
from headway.errors import ExecutorFault
from headway.sched import POLICIES
from tests.support.effort import sample
from tests.support.storm import Storm, reasons
from tests.support.trial import Trial, own_ids

CACHES = ["hashed", "radix"]
B = 4


@pytest.mark.parametrize("prefix_cache", CACHES)
@pytest.mark.parametrize("length", [1, B - 1, B, B + 1, 2 * B - 1, 2 * B, 2 * B + 1, 5 * B])
def test_a_prompt_that_is_cached_whole(length, prefix_cache):
    """PUBLIC_ISSUES 5.1, 5.2: three times the same: the last token is computed again, and never into a shared block."""
    trial = Trial(prefix_cache=prefix_cache, block_size=B)
    for name in "abc":
        trial.submit(name, own_ids("same", length), 2 * B)
        trial.step()
    trial.finish()
    for name in "bc":
        assert trial.cached[name][0] <= length - 1
        assert trial.ids(name) == trial.ids("a")
    hit = trial.core.scheduler.kv.match(own_ids("same", length), "")
    found = {block: list(trial.core.executor.device[block]) for block in hit.block_ids}
    trial.submit("d", own_ids("same", length), 2 * B)
    trial.finish()
    assert trial.cached["d"] == [(length - 1) // B * B]
    assert {block: trial.core.executor.device[block] for block in found} == found


@pytest.mark.parametrize("prefix_cache", CACHES)
@pytest.mark.parametrize(
    ("first", "second", "is_hit"),
    [("a", "a", True), ("", "", True), ("a", "b", False), ("", "a", False), ("a", "", False)],
)
def test_salts(first, second, is_hit, prefix_cache):
    """PUBLIC_ISSUES 5.3: a hit with the same salt, and none, not in time either, with another one."""
    trial = Trial(prefix_cache=prefix_cache, max_num_batched_tokens=8)
    ids = own_ids("secret", 40)
    trial.submit("one", ids, 2, extras={"cache_salt": first})
    trial.finish()
    began = len(trial.steps)
    trial.submit("two", ids, 2, extras={"cache_salt": second})
    trial.finish()
    num_steps = trial.first_at["two"] - began + 1
    assert (trial.cached["two"], num_steps) == (([36], 1) if is_hit else ([0], 5))


@pytest.mark.parametrize("prefix_cache", CACHES)
def test_a_hit_is_looked_up_when_it_is_used(prefix_cache):
    """PUBLIC_ISSUES 5.8: found while there was no room, partly evicted before there was: what is left counts."""
    trial = Trial(prefix_cache=prefix_cache, num_blocks=16, block_size=4)
    ids = own_ids("same", 33)
    trial.submit("first", ids, 1)
    trial.finish()
    trial.submit("holder", 20, 16)
    trial.step()
    trial.submit("second", [*ids, *own_ids("more", 16)], 4)
    found = []
    while not trial.cached["second"]:
        found.append(trial.core.scheduler.kv.match(ids, "").num_tokens)
        trial.step()
    trial.finish()
    assert found[0] > found[-1] >= trial.cached["second"][0]


@pytest.mark.parametrize(("policy", "seed"), sample(product(sorted(POLICIES), range(4)), every=3))
def test_any_schedule_gives_solo_tokens(policy, seed):
    """PUBLIC_ISSUES 5.9, 5.10, 5.15: aborts, broken steps, forks and shared prefixes in a pool far too small: every
    token is that of a solo run, and nobody ends without one but those who were ended.
    """
    trial = Storm(100 + seed, policy=policy).run()
    for name, ending in trial.endings.items():
        if ending.reason in (FinishReason.LENGTH, FinishReason.STOP):
            assert ending.num_output >= trial.requests[name].params.n
    assert sum(reasons(trial).values()) + len(trial.refusals) == len(trial.requests)


@pytest.mark.parametrize("seed", [221])
def test_schedules_that_once_failed(seed):
    """PUBLIC_ISSUES 5.10: a fork back from the host tier kept a block behind blocks that nobody else held."""
    Storm(seed, policy="fastserve").run()


@pytest.mark.parametrize("prefix_cache", CACHES)
@pytest.mark.parametrize("num_at_once", [1, 4])
@pytest.mark.parametrize("shared", [0, 1, B - 1, B, B + 1, 2 * B - 1, 2 * B])
def test_prefixes_at_the_edges_of_blocks(shared, num_at_once, prefix_cache):
    """PUBLIC_ISSUES 5.11: no length of a shared prefix is special, alone or together."""
    trial = Trial(prefix_cache=prefix_cache, block_size=B, max_num_batched_tokens=10)
    prefix = own_ids("prefix", shared)
    for at in range(8):
        trial.submit(f"r{at}", [*prefix, *own_ids(f"r{at}", 5)], 6)
        if at % num_at_once == num_at_once - 1:
            trial.finish()
    trial.finish()


@pytest.mark.parametrize("prefix_cache", CACHES)
@pytest.mark.parametrize("policy", ["headway", "vllm", "sglang"])
def test_cancel_and_retry_beside_others(policy, prefix_cache):
    """PUBLIC_ISSUES 5.12: cancelled in mid-prefill and sent again at once: neither these nor the others change."""
    settings = {"mixed_chunk": "true", "chunked_prefill_size": "16"} if policy == "sglang" else {}
    for first in range(1, 8):
        trial = Trial(policy=policy, policy_settings=settings, prefix_cache=prefix_cache, max_num_batched_tokens=16)
        prefix = own_ids("prefix", 32)
        for at in range(6):
            trial.submit(f"r{at}", [*prefix, *own_ids(f"r{at}", 6)], 8)
        trial.step(first)
        for at in (1, 3):
            trial.abort(f"r{at}")
            trial.submit(f"again{at}", [*prefix, *own_ids(f"r{at}", 6)], 8)
            trial.step()
        trial.finish()
        assert {trial.endings[name].reason for name in trial.endings if name not in {"r1", "r3"}} == {
            FinishReason.LENGTH
        }


@pytest.mark.parametrize("prefix_cache", CACHES)
@pytest.mark.parametrize("how", ["abort", "fault"])
@pytest.mark.parametrize("num_chunks", range(6))
def test_a_prefill_cut_short_leaves_only_what_was_computed(num_chunks, how, prefix_cache):
    """PUBLIC_ISSUES 5.13, 5.15: ended after chunk k, other data over its blocks, then the same prompt: as new."""
    armed = []

    def fault(batch):
        return ExecutorFault("broken", seq_ids=("x",)) if armed and batch.lanes else None

    trial = Trial(prefix_cache=prefix_cache, num_blocks=12, max_num_batched_tokens=8, fault=fault)
    ids = own_ids("x", 40)
    trial.submit("x", ids, 4)
    trial.step(num_chunks)
    if how == "abort":
        trial.abort("x")
    else:
        armed.append(True)
        trial.step()
        armed.clear()
    for num_other in (0, 6, 30):
        if num_other:
            trial.submit(f"other{num_other}", num_other, 8)
            trial.finish()
        trial.submit(f"again{num_other}", ids, 4)
        trial.finish()


@pytest.mark.parametrize("prefix_cache", CACHES)
def test_a_real_cache_gives_the_same_text(tiny, prefix_cache):
    """PUBLIC_ISSUES 5.2, 5.11: on a float32 model, cold, warm and side by side: the same tokens."""
    prompts = [[*own_ids("shared", shared), *own_ids(str(at), 9)] for at, shared in enumerate((0, 15, 16, 17, 32, 48))]
    params = SamplingParams(temperature=0.0, max_tokens=10, ignore_eos=True)
    cold = [tiny(prefix_cache="none").generate([ids], params)[0].choices[0].token_ids for ids in prompts]
    llm = tiny(prefix_cache=prefix_cache, max_num_batched_tokens=24)
    for _ in range(3):
        assert [one.choices[0].token_ids for one in llm.generate(prompts, params)] == cold
        assert [llm.generate([ids], params)[0].choices[0].token_ids for ids in prompts] == cold
