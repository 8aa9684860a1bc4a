"""Whether a policy says of itself what it does with a request's priority: the server refuses what it would ignore."""

import pytest

from headway.sched.registry import POLICIES, make_policy
from headway.sim import parse_scene, run_scene

SCENE = parse_scene(
    {
        "block_size": 4,
        "num_blocks": 8,
        "requests": [
            {"id": name, "arrival": arrival, "prompt": 20, "output": 4, "priority": priority}
            for arrival, (name, priority) in enumerate([("first", 0), ("late", 5), ("urgent", 0)])
        ],
    }
)


@pytest.mark.parametrize(
    ("policy", "settings"),
    [*((name, {}) for name in POLICIES), ("vllm", {"order": "priority"})],
    ids=lambda value: value if isinstance(value, str) else "".join(value.values()),
)
def test_a_policy_honours_priorities_where_it_says_so(policy, settings):
    """Of two alike that wait for one place the lower number comes first exactly where `honours_priority` says so."""
    records = run_scene(SCENE, policy, settings)
    order = [name for record in records for name in record.finished]
    is_first = order.index("urgent") < order.index("late")
    assert is_first == make_policy(policy, settings).honours_priority
