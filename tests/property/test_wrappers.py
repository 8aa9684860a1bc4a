"""Laws of the policies that wrap another one, around every policy that they accept."""

import pytest
from hypothesis import given

from headway.errors import BadSetting
from headway.sched import POLICIES, Wrapper, make_policy, policy_class
from headway.sim import run_scene
from tests.support.effort import few
from tests.support.scenes import scenes

WRAPPERS = [name for name in sorted(POLICIES) if issubclass(policy_class(name), Wrapper)]


def accepts(wrapper, base):
    """Whether the wrapper can be put around this policy."""
    try:
        make_policy(wrapper, {"base": base})
    except BadSetting:
        return False
    return True


PAIRS = [(wrapper, base) for wrapper in WRAPPERS for base in sorted(POLICIES) if accepts(wrapper, base)]


@pytest.mark.parametrize(("wrapper", "base"), PAIRS)
@few(2)
@given(scene=scenes(with_prefixes=True, with_choices=True))
def test_every_request_ends_exactly_once(wrapper, base, scene):
    """Around whatever base, nobody is lost and nobody ends twice."""
    records = run_scene(scene, wrapper, {"base": base})
    ended = [name for record in records for name in record.finished]
    assert len(ended) == len(set(ended))
    rejected = {name for record in records for name in record.rejected}
    for request in scene.requests:
        choices = {request.id, *(f"{request.id}/{choice}" for choice in range(1, request.n))}
        assert choices <= set(ended) or request.id in rejected


def test_vtc_refuses_bases_with_an_order_of_their_own():
    """Fairness needs the base to take the queue as it is shown."""
    refused = {base for base in POLICIES if (("vtc", base) not in PAIRS)}
    assert {"fastserve", "ltr", "sglang", "deadline", "headway", "vtc"} <= refused
    assert accepts("vtc", "vllm")
