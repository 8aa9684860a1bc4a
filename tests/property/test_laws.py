"""Laws that every policy keeps, on random scenes; the core audits pool, queues and counters after each step."""

import pytest
from hypothesis import given

from headway.sched import POLICIES
from headway.sim import as_json, picture, run_scene
from tests.support.effort import few
from tests.support.scenes import scenes

EVERY_POLICY = pytest.mark.parametrize("policy", sorted(POLICIES))


def ends_exactly_once(scene, records):
    """Nobody is lost and nobody ends twice, whatever had to give way."""
    ended = [name for record in records for name in (*record.finished, *record.rejected)]
    assert sorted(ended) == sorted(request.id for request in scene.requests), picture(scene, records)


def work_is_conserved(scene, records):
    """A request that never gave way computes its prompt and all its output but the last token, once."""
    for request in scene.requests:
        if any(request.id in record.preempted or request.id in record.rejected for record in records):
            continue
        computed = sum(record.grants.get(request.id, 0) for record in records)
        assert computed == request.prompt + request.output - 1, picture(scene, records)


def nobody_computes_before_arriving(scene, records):
    """No grant stands before its request's arrival."""
    arrivals = {request.id: request.arrival for request in scene.requests}
    for record in records:
        assert all(record.start_s >= arrivals[name] for name in record.grants), picture(scene, records)


@EVERY_POLICY
@few(3)
@given(scene=scenes())
def test_the_laws_of_single_answers(policy, scene):
    """One end for everybody, all work done once, none of it before the arrival."""
    records = run_scene(scene, policy)
    ends_exactly_once(scene, records)
    work_is_conserved(scene, records)
    nobody_computes_before_arriving(scene, records)


@EVERY_POLICY
@few(3)
@given(scene=scenes(with_prefixes=True, with_choices=True))
def test_shared_prefixes_and_forks_end_too_and_a_run_repeats_itself(policy, scene):
    """Requests with shared prefixes and several choices: each choice ends once. The same scene: the same tape."""
    records = run_scene(scene, policy)
    assert as_json(policy, {}, records) == as_json(policy, {}, run_scene(scene, policy))
    ended = [name for record in records for name in record.finished]
    rejected = {name for record in records for name in record.rejected}
    assert len(ended) == len(set(ended)), picture(scene, records)
    for request in scene.requests:
        if request.id not in rejected:
            wanted = {request.id, *(f"{request.id}/{choice}" for choice in range(1, request.n))}
            assert wanted <= set(ended), picture(scene, records)
