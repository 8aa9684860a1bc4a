"""Building an engine: a limit that the policy does not know is refused, not ignored."""

import pytest

from headway.engine import EngineConfig
from headway.engine.limits import choose_policy
from headway.errors import BadSetting


@pytest.mark.parametrize(
    "wish", [{"itl_target_ms": 50.0}, {"max_num_prefill_tokens": 64}, {"kv_cache_utilization_limit": 0.75}]
)
def test_unknown_limits_are_refused(wish):
    """`vllm` has no such limits; `headway` takes them."""
    with pytest.raises(BadSetting, match=next(iter(wish))):
        choose_policy(EngineConfig(policy="vllm", **wish))
    assert choose_policy(EngineConfig(policy="headway", **wish)) is not None


def test_parameters_win_over_engine_limits():
    """`--set` overrides the engine-wide flag of the same name."""
    policy = choose_policy(EngineConfig(policy="vllm", max_num_seqs=7, policy_settings={"max_num_seqs": "3"}))
    assert policy.limits().max_seqs == 3
