"""Parameters that a policy computes with are bounded, so that no value ends in an error of Python's."""

import pytest

from headway.errors import BadSetting
from headway.sched import make_policy


@pytest.mark.parametrize(
    ("policy", "key", "value", "limit"),
    [
        ("tgi", "waiting_served_ratio", "1e308", "between 0 and 1e"),  # times a few rows, beyond a double
        ("fastserve", "ratio", "1e308", "between 1 and 1000"),  # to the power of a level, too
        ("fastserve", "num_levels", "1000000000", "between 1 and 64"),  # as many quanta and queues
        ("fastserve", "first_quantum", "1e300", "between 1e-06 and 1e"),
        ("headway", "age_s", "1e-320", "0 or between 1e-09 and 1e"),  # seconds ÷ that, beyond a double
        ("headway", "age_s", "-1", "0 or between 1e-09 and 1e"),
        ("headway", "itl_target_ms", "1e-323", "0 or between 1e-09 and 1e"),  # in seconds it would be 0, "off"
    ],
)
def test_a_number_beyond_reason_is_refused_with_its_bounds(policy, key, value, limit):
    """The message names the parameter and the limit."""
    with pytest.raises(BadSetting, match=f"{key} is .*; it must be {limit}"):
        make_policy(policy, {key: value})
