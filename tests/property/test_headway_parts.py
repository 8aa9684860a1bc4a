"""The `headway` policy with its parts switched on and off: everything ends, and what it guarantees holds."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.sim import parse_scene, picture, run_scene
from tests.support.scenes import scenes

PARTS = st.fixed_dictionaries(
    {},
    optional={
        "overflow": st.sampled_from(["0", "0.3"]),
        "shortage_by_cost": st.just("false"),
        "fair": st.just("false"),
        "prefix_wait": st.just("false"),
        "short_prompt_tokens": st.sampled_from(["0", "2"]),
        "age_s": st.sampled_from(["0", "3"]),
        "itl_target_ms": st.sampled_from(["1", "1500"]),
        "max_num_batched_tokens": st.sampled_from(["3", "8"]),
        "max_num_seqs": st.sampled_from(["3", "4"]),
        "kv_cache_utilization_limit": st.just("0.5"),
        "long_prefill_token_threshold": st.just("4"),
        "prefix_cache": st.sampled_from(["none", "hashed", "radix"]),
    },
)


@given(scene=scenes(with_prefixes=True, with_choices=True), settings=PARTS)
def test_everything_ends_whatever_is_switched_off(scene, settings):
    """Each request ends once under every combination of parts, and the core's audit holds at every step."""
    records = run_scene(scene, "headway", settings)
    ended = [name for record in records for name in record.finished]
    wanted = [
        name
        for request in scene.requests
        for name in (request.id, *(f"{request.id}/{choice}" for choice in range(1, request.n)))
    ]
    assert sorted(ended) == sorted(wanted), picture(scene, records)


@given(scene=scenes(), settings=PARTS)
def test_work_is_conserved_in_time(scene, settings):
    """While somebody waits or runs, no two steps in a row compute nothing."""
    records = run_scene(scene, "headway", settings)
    idle = [not record.grants for record in records]
    assert not any(now and then for now, then in pairwise(idle)), picture(scene, records)


@given(scene=scenes())
def test_decodes_never_stall_for_prefill(scene):
    """A sequence that emitted a token in one step is granted in the next, unless it gave way or had ended."""
    records = run_scene(scene, "headway", {"overflow": "0"})
    emitted: dict[str, int] = {}
    lengths = {request.id: request.prompt for request in scene.requests}
    decoding: set[str] = set()
    over: set[str] = set()
    for record in records:
        gone = {*record.preempted, *record.swapped_out}
        stalled = decoding - gone - set(record.grants)
        assert not stalled, f"{stalled} stalled in step {record.step}\n{picture(scene, records)}"
        for name, num in record.grants.items():
            emitted[name] = emitted.get(name, 0) + num
        over |= set(record.finished)
        decoding = {name for name, num in emitted.items() if num >= lengths[name]} - over
        for name in gone:
            decoding.discard(name)
            emitted[name] = -(10**6)  # what it recomputes is not followed further


def test_short_prompts_have_a_lane():
    """A short prompt that arrives behind a long one is not kept waiting for its end."""
    scene = parse_scene(
        {
            "block_size": 4,
            "num_blocks": 200,
            "requests": [
                {"id": "long", "arrival": 0, "prompt": 200, "output": 2},
                {"id": "short", "arrival": 1, "prompt": 8, "output": 2},
            ],
        }
    )
    with_lane = run_scene(scene, "headway", {"max_num_batched_tokens": "16", "short_prompt_tokens": "8"})
    without = run_scene(scene, "headway", {"max_num_batched_tokens": "16", "short_prompt_tokens": "0"})
    assert _end(with_lane, "short") <= 3 < _end(without, "short")
    others = run_scene(
        scene,
        "headway",
        {"max_num_batched_tokens": "16", "short_prompt_tokens": "8", "own_short_prompt_tokens": "7"},
    )
    assert _end(others, "short") == _end(without, "short")  # its own tenant's: there fewer are short


def test_a_shared_prefix_is_computed_once():
    """Of two requests with one prefix, the second waits and then finds it in the cache."""
    prefix = {"group": "g", "tokens": 32}
    scene = parse_scene(
        {
            "block_size": 4,
            "num_blocks": 100,
            "requests": [
                {"id": "A", "arrival": 0, "prompt": 40, "output": 2, "prefix": prefix},
                {"id": "B", "arrival": 0, "prompt": 40, "output": 2, "prefix": prefix},
            ],
        }
    )
    assert _tokens(run_scene(scene, "headway"), "B") == 9
    assert _tokens(run_scene(scene, "headway", {"prefix_wait": "false"}), "B") == 41


@pytest.mark.parametrize("age", ["2", "5"])
def test_ageing_bounds_the_wait(age):
    """A request of low priority is served although better ones of its tier keep coming, after age_s at the latest."""
    better = [
        {"id": f"p{at}", "arrival": at, "prompt": 4, "output": 1, "priority": 0, "tenant": "t"} for at in range(60)
    ]
    scene = parse_scene(
        {
            "block_size": 4,
            "num_blocks": 50,
            "requests": [{"id": "low", "arrival": 0, "prompt": 4, "output": 1, "priority": 3, "tenant": "t"}, *better],
        }
    )
    settings = {"max_num_batched_tokens": "4", "max_num_seqs": "1", "age_s": age}
    assert _end(run_scene(scene, "headway", settings), "low") <= int(age) + 2
    assert _end(run_scene(scene, "headway", {**settings, "age_s": "0"}), "low") == 60


def _end(records, name):
    return next(record.step for record in records if name in record.finished)


def _tokens(records, name):
    return sum(record.grants.get(name, 0) for record in records)
