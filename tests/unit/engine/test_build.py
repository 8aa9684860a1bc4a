"""Building an engine: a limit that the policy does not know is refused, not ignored."""

import pytest

from headway.engine import EngineConfig, for_comparison
from headway.engine.limits import choose_policy
from headway.errors import BadSetting
from headway.sched import POLICIES, all_params


@pytest.mark.parametrize(
    "wish", [{"itl_target_ms": 50.0}, {"max_num_prefill_tokens": 64}, {"kv_cache_utilization_limit": 0.75}]
)
def test_unknown_limits_are_refused(wish):
    """`vllm` has no such limits; `headway` takes them."""
    with pytest.raises(BadSetting, match=next(iter(wish))):
        choose_policy(EngineConfig(policy="vllm", **wish))
    assert choose_policy(EngineConfig(policy="headway", **wish)) is not None


BUDGETS = {
    "fastserve": "max_tokens_per_batch",
    "lmdeploy": "max_prefill_token_num",
    "sarathi_serve": "token_budget",
    "sglang": "chunked_prefill_size",
    "splitfuse": "token_budget",
    "tgi": "max_batch_prefill_tokens",
    "trtllm": "max_num_tokens",
    "vllm": "max_num_batched_tokens",
    "vtc": "max_num_batched_tokens",
}
SEQUENCES = {
    "fastserve": "max_batch_size",
    "lmdeploy": "max_batch_size",
    "orca": "max_batch_size",
    "sarathi": "max_num_seqs",
    "sglang": "max_running_requests",
    "static": "max_batch_size",
    "trtllm": "max_batch_size",
    "dynamic_batch": "max_num_seqs",
}


@pytest.mark.parametrize("policy", sorted(POLICIES))
@pytest.mark.parametrize(("flag", "names"), [("max_num_batched_tokens", BUDGETS), ("max_num_seqs", SEQUENCES)])
def test_a_limit_goes_by_its_names_in_other_systems(policy, flag, names):
    """A limit that is set reaches the policy under the policy's own name, or is refused with what it has instead."""
    config = EngineConfig(policy=policy, **{flag: 48})
    own = all_params(policy, {}, config.policy_defaults())
    name = names.get(policy, flag)
    if name in own:
        choose_policy(config)
        assert own[name] == 48
    else:
        with pytest.raises(BadSetting, match=f"{flag} is 48.*{next(iter(own))}"):
            choose_policy(config)


def test_a_limit_that_is_not_set_leaves_policies_their_own():
    """Defaults are those of the system that is copied."""
    assert all_params("trtllm", {}, EngineConfig().policy_defaults())["max_num_tokens"] == 8192
    settings = {"token_budget": "99"}
    assert all_params("splitfuse", settings, EngineConfig(max_num_batched_tokens=48).policy_defaults()) == {
        **all_params("splitfuse", settings),
        "max_num_seqs": 256,
    }


def test_parameters_win_over_engine_limits():
    """`--set` overrides the engine-wide flag of the same name."""
    policy = choose_policy(EngineConfig(policy="vllm", max_num_seqs=7, policy_settings={"max_num_seqs": "3"}))
    assert policy.limits().max_seqs == 3


@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_in_a_comparison_a_limit_is_for_those_it_fits(policy):
    """Every policy takes part; the limits that it has, under whatever name, stay set."""
    config = EngineConfig(policy=policy, max_num_batched_tokens=2048, max_num_seqs=64)
    compared = for_comparison(config)
    choose_policy(compared)
    assert (compared.max_num_batched_tokens == 2048) == (policy not in {"orca", "sarathi", "static"})
    assert (compared.max_num_seqs == 64) == (policy != "tgi")
