"""Laws that every policy keeps, on random scenes; the core audits pool, queues and counters after each step."""

import pytest
from hypothesis import given

from headway.sched import POLICIES
from headway.sim import as_json, picture, run_scene
from tests.support.scenes import scenes

EVERY_POLICY = pytest.mark.parametrize("policy", sorted(POLICIES))


@EVERY_POLICY
@given(scene=scenes())
def test_every_request_ends_exactly_once(policy, scene):
    """Nobody is lost and nobody ends twice, whatever had to give way."""
    records = run_scene(scene, policy)
    ended = [name for record in records for name in (*record.finished, *record.rejected)]
    assert sorted(ended) == sorted(request.id for request in scene.requests)


@EVERY_POLICY
@given(scene=scenes())
def test_work_is_conserved(policy, scene):
    """A request that never gave way computes its prompt and all its output but the last token, once."""
    records = run_scene(scene, policy)
    for request in scene.requests:
        if any(request.id in record.preempted or request.id in record.rejected for record in records):
            continue
        computed = sum(record.grants.get(request.id, 0) for record in records)
        assert computed == request.prompt + request.output - 1, picture(scene, records)


@EVERY_POLICY
@given(scene=scenes(with_prefixes=True, with_choices=True))
def test_shared_prefixes_and_forks_end_too(policy, scene):
    """Requests with shared prefixes and several choices: each choice ends once."""
    records = run_scene(scene, policy)
    ended = [name for record in records for name in record.finished]
    rejected = {name for record in records for name in record.rejected}
    assert len(ended) == len(set(ended)), picture(scene, records)
    for request in scene.requests:
        if request.id not in rejected:
            wanted = {request.id, *(f"{request.id}/{choice}" for choice in range(1, request.n))}
            assert wanted <= set(ended), picture(scene, records)


@EVERY_POLICY
@given(scene=scenes(with_prefixes=True, with_choices=True))
def test_a_run_repeats_itself(policy, scene):
    """The same scene gives the same tape, to the letter."""
    first, second = (as_json(policy, {}, run_scene(scene, policy)) for _ in range(2))
    assert first == second


@EVERY_POLICY
@given(scene=scenes())
def test_nobody_computes_before_arriving(policy, scene):
    """No grant stands before its request's arrival."""
    arrivals = {request.id: request.arrival for request in scene.requests}
    for record in run_scene(scene, policy):
        assert all(record.start_s >= arrivals[name] for name in record.grants)
