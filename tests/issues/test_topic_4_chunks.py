"""Chunked prefill changes when something is computed, never what comes out."""

import random

import pytest

from headway.core import SamplingParams
from tests.support.trial import Trial, own_ids

CHUNKS = (1, 7, 16, 39, 40)


@pytest.mark.parametrize("chunk", CHUNKS)
@pytest.mark.parametrize("n", [1, 2])
def test_prompt_scores_do_not_depend_on_chunks(chunk, n):
    """PUBLIC_ISSUES 4.1, 4.2: 39 scores for 40 tokens, once, before the first token, whatever the chunk."""
    trial = Trial(max_num_batched_tokens=chunk)
    trial.submit("x", 40, 3, prompt_logprobs=0, logprobs=0, n=n)
    trial.finish()
    assert len(trial.scores["x"]) == 39


@pytest.mark.parametrize("chunk", CHUNKS)
def test_nothing_is_said_before_the_last_chunk(chunk):
    """PUBLIC_ISSUES 4.2, 4.3: the first token comes with the last chunk, and there are as many as were asked for."""
    trial = Trial(max_num_batched_tokens=chunk)
    trial.submit("x", 40, 5)
    trial.finish()
    assert trial.first_at["x"] == -(-40 // chunk) - 1
    assert len(trial.ids("x")) == 5


def test_logprobs_belong_to_their_tokens_in_a_mixed_step():
    """PUBLIC_ISSUES 4.5: a prompt under way, a decode and a last chunk in one step; each has what it has alone."""
    trial = Trial(max_num_batched_tokens=17)
    trial.submit("decodes", 4, 12, logprobs=0)
    trial.step(2)
    trial.submit("ends", 10, 4, logprobs=0, prompt_logprobs=0, n=2)
    trial.submit("begins", 30, 4, logprobs=0, prompt_logprobs=0)
    trial.step()
    assert trial.steps[-1].grants == {"decodes": 1, "ends": 10, "begins": 6}
    trial.finish()


@pytest.mark.parametrize(
    ("policy", "settings"),
    [
        ("headway", {}),
        ("vllm", {}),
        ("sarathi_serve", {"token_budget": "40"}),
        ("splitfuse", {"token_budget": "40"}),
        ("lmdeploy", {"max_prefill_token_num": "40"}),
    ],
)
def test_the_tail_of_a_prompt_shares_its_step(policy, settings):
    """PUBLIC_ISSUES 4.7: two prompts of 1.2 budgets take three steps, not four."""
    trial = Trial(policy=policy, policy_settings=settings, max_num_batched_tokens=40, num_blocks=100)
    for name in "ab":
        trial.submit(name, 48, 1)
    trial.finish()
    rows = [sum(record.grants.values()) for record in trial.steps if record.grants]
    assert rows[0] == 40
    assert len(rows) == 3
    assert sum(rows) == 96


def test_a_scored_prompt_is_computed_whole_again():
    """PUBLIC_ISSUES 4.8: scores are the same when all is cached, nothing counts as found, and others still find it."""
    trial = Trial(num_blocks=40)
    ids = own_ids("shared", 33)
    for name in ("first", "second", "third"):
        trial.submit(name, ids, 2, prompt_logprobs=0)
        trial.finish()
    trial.submit("plain", ids, 2)
    trial.finish()
    assert [trial.cached[name] for name in ("first", "second", "third", "plain")] == [[0], [0], [0], [32]]
    assert trial.scores["second"] == trial.scores["first"]


def test_prompts_that_are_scored_do_not_wait_for_each_other():
    """PUBLIC_ISSUES 4.8: who never reads the cache gains nothing by waiting for a prefix: eight take one step."""
    trial = Trial(policy="headway", num_blocks=200, max_num_batched_tokens=512)
    prefix = own_ids("prefix", 32)
    for at in range(8):
        trial.submit(f"r{at}", [*prefix, *own_ids(f"r{at}", 8)], 1, prompt_logprobs=0)
    trial.step()
    assert len(trial.steps[-1].grants) == 8
    trial.finish()


def test_greedy_text_does_not_depend_on_chunks(tiny):
    """PUBLIC_ISSUES 4.10: 20 prompts on a float32 model, in chunks of 16, of 64 and whole: the same tokens."""
    rng = random.Random(5)
    prompts = [[rng.randrange(3, 260) for _ in range(rng.randint(20, 200))] for _ in range(20)]
    params = SamplingParams(temperature=0.0, max_tokens=12, ignore_eos=True)
    texts = []
    for chunk in (16, 64, 4096):
        llm = tiny(max_num_batched_tokens=chunk, prefix_cache="none", num_blocks=400)
        texts.append([one.choices[0].token_ids for one in llm.generate(prompts, params)])
    assert texts[0] == texts[1] == texts[2]


@pytest.mark.parametrize("prefix_cache", ["hashed", "radix"])
@pytest.mark.parametrize("num_chunks", [1, 2, 4])
@pytest.mark.parametrize("num_hit", [1, 3])
def test_chunks_behind_a_hit_are_written_behind_it(num_hit, num_chunks, prefix_cache):
    """PUBLIC_ISSUES 4.11: blocks of a hit stay as they are, and the chunks land in blocks of their own."""
    trial = Trial(max_num_batched_tokens=8, prefix_cache=prefix_cache)
    shared = own_ids("shared", 4 * num_hit)
    trial.submit("first", [*shared, 7], 2)
    trial.finish()
    device = trial.core.executor.device
    found = trial.core.scheduler.kv.match([*shared, 9], "").block_ids
    before = {block: list(device[block]) for block in found}
    for name in ("second", "third"):
        trial.submit(name, [*shared, *own_ids(name, 8 * num_chunks)], 6)
    trial.finish()
    assert trial.cached["second"] == trial.cached["third"] == [4 * num_hit]
    assert len(before) == num_hit
    assert {block: device[block] for block in found} == before
