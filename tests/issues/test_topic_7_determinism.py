"""The same request gives the same answer, wherever and beside whomever it runs."""

import pytest

from headway.core import SamplingParams
from headway.sched import POLICIES
from tests.support.trial import Trial, own_ids

GREEDY = SamplingParams(temperature=0.0, max_tokens=12, ignore_eos=True, logprobs=0)
PROMPT = own_ids("prompt", 23)


def ids(generation):
    return [choice.token_ids for choice in generation.choices]


def drawn(**changes):
    return SamplingParams(**{"temperature": 1.0, "max_tokens": 12, "ignore_eos": True, **changes})


@pytest.mark.parametrize("num_others", [0, 1, 6, 15])
def test_company_does_not_change_a_greedy_answer(tiny, num_others):
    """PUBLIC_ISSUES 7.1, 7.10: alone, among 2, 7 and 16, first or last, beside prompts in chunks: the same tokens.

    Log probabilities agree within rounding of float32; the compiled kernels promise equal bits (tests/identity).
    """
    alone = tiny(prefix_cache="none").generate([PROMPT], GREEDY)[0].choices[0]
    others = [own_ids(f"other{at}", 5 + 11 * at) for at in range(num_others)]
    for at in {0, num_others // 2, num_others}:
        llm = tiny(max_num_batched_tokens=48, prefix_cache="none")
        choice = llm.generate([*others[:at], PROMPT, *others[at:]], GREEDY)[at].choices[0]
        assert choice.token_ids == alone.token_ids
        got = [entry.logprob for entry in choice.logprobs]
        assert got == pytest.approx([entry.logprob for entry in alone.logprobs], abs=1e-4)


def test_the_likeliest_of_one_is_greedy(tiny):
    """PUBLIC_ISSUES 7.1: top_k 1, a tiny top_p and temperature 0 agree, in one batch."""
    params = [GREEDY, drawn(top_k=1, seed=3), drawn(top_p=1e-6, seed=4), drawn(temperature=0.0)]
    results = tiny().generate([PROMPT] * 4, params)
    assert len({tuple(ids(one)[0]) for one in results}) == 1


def test_a_seed_means_the_same_in_every_place(tiny):
    """PUBLIC_ISSUES 7.3: four at once with one seed are equal; four choices of one request differ, and repeat."""
    llm = tiny()
    at_once = llm.generate([PROMPT] * 4, drawn(seed=11))
    assert len({tuple(ids(one)[0]) for one in at_once}) == 1
    twice = [ids(llm.generate([PROMPT], drawn(seed=11, n=4))[0]) for _ in range(2)]
    assert twice[0] == twice[1]
    assert len(set(map(tuple, twice[0]))) == 4
    assert twice[0][0] == ids(at_once[0])[0]


def test_seeds_are_honoured_and_absent_ones_differ(tiny):
    """PUBLIC_ISSUES 7.5: seed 1, seed 2, seed 1, one after another and together; without any, two draws differ."""
    llm = tiny()
    seeds = [1, 2, 1, None, None]
    apart = [ids(llm.generate([PROMPT], drawn(seed=seed))[0])[0] for seed in seeds]
    together = [ids(one)[0] for one in llm.generate([PROMPT] * 5, [drawn(seed=seed) for seed in seeds])]
    for first, second, third, fourth, fifth in (apart, together):
        assert first == third != second
        assert fourth != fifth
    assert apart[:3] == together[:3]


@pytest.mark.parametrize("num", [15, pytest.param(50, marks=pytest.mark.slow)])
def test_cold_and_warm_are_equal(tiny, num):
    """PUBLIC_ISSUES 7.6, 7.7: many prompts cold and then with a hit: no token differs."""
    llm = tiny(num_blocks=400)
    prompts = [[*own_ids("shared", 40), *own_ids(f"p{at}", 3 + at)] for at in range(num)]
    cold = [ids(tiny(prefix_cache="none", num_blocks=400).generate([one], GREEDY)[0]) for one in prompts[:3]]
    first = [ids(one) for one in llm.generate(prompts, GREEDY)]
    warm = llm.generate(prompts, GREEDY)
    assert [ids(one) for one in warm] == first
    assert first[:3] == cold
    assert all(one.usage.num_cached >= 32 for one in warm)


@pytest.mark.parametrize("policy", ["headway", "vllm", "vllm_v0", "fastserve", "lmdeploy", "sglang", "vtc"])
def test_many_preemptions_leave_no_trace(policy):
    """PUBLIC_ISSUES 7.8: preempted twice and more: no token missing, none twice, usage and log probabilities whole."""
    settings = {"headway": {"overflow": "0"}, "vllm_v0": {"preemption": "swap", "mode": "chunked"}}.get(policy, {})
    trial = Trial(
        policy=policy, policy_settings=settings, num_blocks=16, prefix_cache="none", host_memory=40, max_model_len=None
    )
    for at in range(6):
        params = {"temperature": 1.0, "seed": at} if at % 2 else {}
        trial.submit(f"r{at}", 9 + at, 40, logprobs=0, **params)
    trial.finish()
    assert not trial.refusals
    if policy != "sglang":
        assert max(trial.num_preemptions.values()) >= 2


@pytest.mark.parametrize("policy", ["headway", "vllm"])
def test_preemption_of_a_real_model(tiny, policy):
    """PUBLIC_ISSUES 7.8, 7.10: a float32 model in a pool far too small says what it says in a large one."""
    prompts = [own_ids(f"r{at}", 20 + at) for at in range(6)]
    params = [GREEDY if at % 2 else drawn(seed=at, max_tokens=40) for at in range(6)]
    large = tiny(policy=policy).generate(prompts, params)
    small = tiny(policy=policy, num_blocks=8, policy_settings={} if policy == "vllm" else {"overflow": "0"})
    seen = []
    small.engine.core.listen(seen.extend)
    assert [ids(one) for one in small.generate(prompts, params)] == [ids(one) for one in large]
    assert any(type(event).__name__ == "Preempted" for event in seen)


@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_a_run_repeats_itself(policy):
    """PUBLIC_ISSUES 7.1: the same requests at the same moments give the same steps."""

    def steps():
        trial = Trial(policy=policy, num_blocks=40)
        for at in range(8):
            trial.submit(f"r{at}", 5 + 3 * at % 11, 6, extras={"tenant": "uv"[at % 2]})
            trial.step()
        trial.finish()
        return [(record.grants, record.preempted) for record in trial.steps]

    assert steps() == steps()
