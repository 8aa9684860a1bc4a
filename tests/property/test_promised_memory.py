"""Each reserving policy's own invariants (ALGORITHMS §1, §2, §10, §11), on random scenes."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from headway.sim import picture, run_scene
from tests.support.scenes import scenes


def by_id(scene):
    return {request.id: request for request in scene.requests}


def arrival_order(scene):
    return [request.id for request in sorted(scene.requests, key=lambda request: request.arrival)]


def first_steps(records):
    """The first step of each request, in order of these steps."""
    first = {}
    for record in records:
        for name in record.grants:
            first.setdefault(name, record.step)
    return first


def starts_in_order(scene, records):
    """Nobody was overtaken at admission."""
    first = first_steps(records)
    return all(first[early] <= first[late] for early, late in pairwise(arrival_order(scene)))


@given(scene=scenes(), size=st.integers(1, 4))
def test_static_batches_keep_their_members(scene, size):
    """A batch ends as one; its steps are its longest output, its waste the outputs and prompts that are shorter."""
    records = run_scene(scene, "static", {"max_batch_size": str(size)})
    requests, members, num_steps, rows, padding = by_id(scene), set(), 0, 0, 0
    for record in records:
        if not num_steps:
            members = set(record.grants)
        num_steps += 1
        rows += len(record.wasted_rows)
        padding += sum(record.padding.values())
        assert set(record.grants) | set(record.wasted_rows) == members, picture(scene, records)
        if record.finished:
            outputs = [requests[name].output for name in members]
            prompts = [requests[name].prompt for name in members]
            assert set(record.finished) == members
            assert num_steps == max(outputs)
            assert rows == sum(max(outputs) - output for output in outputs)
            assert padding == sum(max(prompts) - prompt for prompt in prompts)
            num_steps = rows = padding = 0
    assert starts_in_order(scene, records)


@given(scene=scenes(), size=st.integers(1, 4), num_workers=st.integers(1, 3))
def test_orca_keeps_to_its_slots(scene, size, num_workers):
    """Reservations fit the slots, batches are small and, while in flight, disjoint; who came first is never behind."""
    requests = by_id(scene)
    num_slots = max(request.prompt + request.max_output for request in scene.requests) + 5
    settings = {"max_batch_size": size, "num_slots": num_slots, "num_workers": num_workers}
    records = run_scene(scene, "orca", {key: str(value) for key, value in settings.items()})
    inside, turns, flying = set(), dict.fromkeys(requests, 0), []
    for record in records:
        inside |= set(record.grants)
        assert sum(requests[name].prompt + requests[name].max_output for name in inside) <= num_slots
        assert len(record.grants) <= size
        assert not any(set(record.grants) & batch for batch in flying), picture(scene, records)
        flying = [*flying, set(record.grants)][1 - num_workers :] if num_workers > 1 and record.grants else []
        assert num_workers > 1 or len(inside) > size or set(record.grants) == inside, picture(scene, records)
        for name in record.grants:
            turns[name] += 1
        inside -= set(record.finished)
        living = [turns[name] for name in arrival_order(scene) if name in inside]
        assert living == sorted(living, reverse=True), picture(scene, records)
    assert starts_in_order(scene, records)


@given(scene=scenes(), ratio=st.sampled_from(["0.3", "1.2", "2"]), patience=st.integers(0, 5))
def test_tgi_prefills_alone_and_within_bounds(scene, ratio, patience):
    """A step prefills or decodes; reservations and prefill budget hold; of two prefills in a row, one found nobody."""
    requests = by_id(scene)
    total = max(request.prompt + request.max_output for request in scene.requests) + scene.block_size
    budget = max(request.prompt for request in scene.requests) + 3
    settings = {
        "max_batch_total_tokens": str(total),
        "max_batch_prefill_tokens": str(budget),
        "waiting_served_ratio": ratio,
        "max_waiting_tokens": str(patience),
    }
    records = run_scene(scene, "tgi", settings)
    inside, paused = set(), False
    for record in records:
        new = set(record.grants) - inside
        assert not new or new == set(record.grants), picture(scene, records)
        if new:
            assert sum(record.grants.values()) <= budget
            assert not paused, picture(scene, records)
        else:
            assert set(record.grants) == inside, picture(scene, records)
        paused = bool(new and inside)
        inside |= new
        assert sum(requests[name].prompt + requests[name].max_output - 1 for name in inside) <= total
        inside -= set(record.finished)
    assert starts_in_order(scene, records)


@given(scene=scenes(with_prefixes=True, with_choices=True), is_static=st.booleans())
def test_trtllm_never_pauses_whom_it_let_in_to_the_end(scene, is_static):
    """Without eviction everyone who started runs in every step; a static batch lets nobody join."""
    capacity = "static_batch" if is_static else "guaranteed_no_evict"
    records = run_scene(scene, "trtllm", {"capacity": capacity, "max_batch_size": "6"})
    inside = set()
    for record in records:
        assert not record.preempted
        assert inside <= set(record.grants), picture(scene, records)
        if is_static and inside:
            requests = {name.partition("/")[0] for name in inside}
            assert {name.partition("/")[0] for name in record.grants} == requests
        inside = (inside | set(record.grants)) - set(record.finished)


@given(scene=scenes(), size=st.integers(1, 5))
def test_trtllm_pauses_from_the_back(scene, size):
    """With the highest utilisation the oldest always moves, and whoever is paused came after all who run."""
    records = run_scene(scene, "trtllm", {"capacity": "max_utilization", "max_batch_size": str(size)})
    order = arrival_order(scene)
    ended = set()
    for record in records:
        here = [name for name in order if by_id(scene)[name].arrival <= record.start_s and name not in ended]
        assert not here or here[0] in record.grants, picture(scene, records)
        for name in record.preempted:
            assert all(order.index(other) < order.index(name) for other in record.grants)
        ended |= set(record.finished)


@given(scene=scenes(), budget=st.integers(6, 20), policy=st.sampled_from(["first_come", "equal_progress"]))
def test_trtllm_cuts_prompts_to_blocks(scene, budget, policy):
    """Every chunk but a prompt's last is a whole number of blocks, and the budget holds."""
    settings = {"chunked": "true", "chunk_policy": policy, "max_num_tokens": str(budget)}
    records = run_scene(scene, "trtllm", settings)
    done = dict.fromkeys(by_id(scene), 0)
    for record in records:
        assert sum(record.grants.values()) <= budget
        for name, num_tokens in record.grants.items():
            done[name] += num_tokens
            assert done[name] >= by_id(scene)[name].prompt or num_tokens % scene.block_size == 0
