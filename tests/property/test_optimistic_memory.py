"""Invariants of the policies that admit optimistically and take memory back (ALGORITHMS §3, §6, §7, §8, §12)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.sim import parse_scene, picture, run_scene
from tests.support.scenes import scenes

MODES = st.sampled_from(["mixed", "prefill_first", "chunked"])
APPENDS = st.sampled_from(["need", "exact"])


def ranks(scene):
    """Place in order of arrival, by request id."""
    order = sorted(scene.requests, key=lambda request: request.arrival)
    return {request.id: place for place, request in enumerate(order)}


def with_prefills(scene, records):
    """Each record with the names of those that compute a prompt in it, a recomputed one included."""
    prompts = {request.id: request.prompt for request in scene.requests}
    known, computed = dict(prompts), dict.fromkeys(prompts, 0)
    is_decoding = dict.fromkeys(prompts, False)
    for record in records:
        for name in record.preempted:
            computed[name], is_decoding[name] = 0, False
        yield record, {name for name in record.grants if not is_decoding[name]}
        for name, num_tokens in record.grants.items():
            computed[name] += num_tokens
            if computed[name] == known[name]:
                known[name] += 1
                is_decoding[name] = True


def roomy(scene):
    """The same requests with memory for all of them at once."""
    requests = [
        {"id": entry.id, "arrival": entry.arrival, "prompt": entry.prompt, "output": entry.output}
        for entry in scene.requests
    ]
    return parse_scene({"block_size": scene.block_size, "num_blocks": 400, "requests": requests})


@given(scene=scenes(), mode=MODES, append=APPENDS, preemption=st.sampled_from(["recompute", "swap"]))
def test_vllm_v0_takes_from_the_youngest(scene, mode, append, preemption):
    """Whoever gives way arrived after everyone who is computed in that step, and nobody is admitted then."""
    rank = ranks(scene)
    records = run_scene(scene, "vllm_v0", {"mode": mode, "append": append, "preemption": preemption})
    assert {name for record in records for name in record.finished} == set(rank), picture(scene, records)
    held = set()
    for record in records:
        losers = {*record.preempted, *record.swapped_out}
        if losers:
            assert all(rank[name] < min(map(rank.get, losers)) for name in record.grants), picture(scene, records)
            assert set(record.grants) <= held | set(record.swapped_in), picture(scene, records)
        held = (held | set(record.grants)) - losers - set(record.finished)


@given(scene=scenes(), append=APPENDS)
def test_vllm_v0_never_mixes_prefill_first(scene, append):
    """A step is all prompts or all decodes; as long as somebody is swapped out, it is no prompt."""
    records = run_scene(scene, "vllm_v0", {"mode": "prefill_first", "append": append, "preemption": "swap"})
    swapped = set()
    for record, prefills in with_prefills(scene, records):
        assert prefills in (set(), set(record.grants)), picture(scene, records)
        assert not (prefills and swapped), picture(scene, records)
        swapped = (swapped | set(record.swapped_out)) - set(record.swapped_in)


@given(scene=scenes(with_choices=True, with_prefixes=True), mode=MODES, append=APPENDS)
def test_vllm_v0_swaps_requests_whole(scene, mode, append):
    """All choices that have not ended leave for the host tier together, and come back together."""
    records = run_scene(scene, "vllm_v0", {"mode": mode, "append": append})
    for request in scene.requests:
        living = {request.id, *(f"{request.id}/{choice}" for choice in range(1, request.n))}
        away = set()
        for record in records:
            assert living & set(record.swapped_out) in (set(), living), picture(scene, records)
            assert living & set(record.swapped_in) in (set(), away), picture(scene, records)
            away = (away | (living & set(record.swapped_out))) - set(record.swapped_in)
            assert not away & set(record.grants), picture(scene, records)
            living -= set(record.finished)


@given(scene=scenes(), chunk=st.integers(1, 4), tile=st.integers(0, 3), places=st.integers(1, 4))
def test_sarathi_runs_one_prompt_and_every_decode(scene, chunk, tile, places):
    """One prompt at most in a step, within the chunk; whoever decodes is in every step; chunks fill whole tiles."""
    chunk *= max(tile, 1)
    settings = {"chunk_size": str(chunk), "tile_size": str(tile), "max_num_seqs": str(places)}
    records = run_scene(scene, "sarathi", settings)
    computed = dict.fromkeys(ranks(scene), 0)
    prompts = {request.id: request.prompt for request in scene.requests}
    decoding = set()
    for record, prefills in with_prefills(scene, records):
        assert len(prefills) <= 1, picture(scene, records)
        assert sum(record.grants[name] for name in prefills) <= chunk, picture(scene, records)
        assert decoding <= set(record.grants), picture(scene, records)
        assert len(record.grants) <= places, picture(scene, records)
        for name, num_tokens in record.grants.items():
            computed[name] += num_tokens
        if tile and any(computed[name] < prompts[name] for name in prefills):
            assert sum(record.grants.values()) % tile == 0, picture(scene, records)
        decoding |= {name for name in record.grants if computed[name] >= prompts[name]}
        decoding -= set(record.finished)
    assert not any(record.preempted for record in records)


@given(scene=scenes(), budget=st.integers(1, 30), append=APPENDS, guard=st.booleans())
def test_sarathi_serve_never_stalls_a_decode(scene, budget, append, guard):
    """Every decode is in every step unless it was preempted; prompts keep to the budget; the guard keeps the door."""
    settings = {"token_budget": str(budget), "append": append, "guard": str(guard).lower()}
    records = run_scene(scene, "sarathi_serve", settings)
    decoding, held = set(), set()
    for record, prefills in with_prefills(scene, records):
        assert decoding - set(record.preempted) <= set(record.grants), picture(scene, records)
        assert sum(record.grants.values()) <= budget or not prefills, picture(scene, records)
        if guard and record.preempted:
            assert set(record.grants) <= held - set(record.preempted), picture(scene, records)
        held = (held - set(record.preempted)) | set(record.grants)
        held -= set(record.finished)
        emitted = {name for name in record.grants if name not in prefills}
        decoding = (decoding - set(record.preempted)) | emitted
        decoding -= set(record.finished)


@given(scene=scenes().map(roomy), budget=st.integers(1, 30))
def test_splitfuse_fills_its_budget(scene, budget):
    """With memory for all, a step computes the smaller of the budget and all that there is to compute."""
    records = run_scene(scene, "splitfuse", {"token_budget": str(budget)})
    todo = {request.id: request.prompt for request in scene.requests}
    arrivals = {request.id: request.arrival for request in scene.requests}
    for record, prefills in with_prefills(scene, records):
        here = sum(num for name, num in todo.items() if arrivals[name] <= record.start_s)
        assert sum(record.grants.values()) == min(budget, here), picture(scene, records)
        cut = [name for name in prefills if record.grants[name] < todo[name]]
        assert cut in ([], [list(record.grants)[-1]]), picture(scene, records)
        for name, num_tokens in record.grants.items():
            todo[name] = todo[name] - num_tokens or 1
        for name in record.finished:
            del todo[name]


@given(scene=scenes(), budget=st.integers(1, 30), rows=st.integers(1, 5))
def test_splitfuse_flushes_only_when_nothing_runs(scene, budget, rows):
    """Memory is taken from one sequence, in a step that computes nothing."""
    records = run_scene(scene, "splitfuse", {"token_budget": str(budget), "max_num_seqs": str(rows)})
    for record in records:
        assert len(record.grants) <= rows, picture(scene, records)
        assert sum(record.grants.values()) <= budget, picture(scene, records)
        assert not record.preempted or (len(record.preempted) == 1 and not record.grants), picture(scene, records)


@given(scene=scenes(), slots=st.integers(1, 5), budget=st.integers(1, 30))
def test_lmdeploy_serves_the_older_first(scene, slots, budget):
    """Whoever loses memory arrived after somebody who is computed then, and prompts keep to their budget."""
    rank = ranks(scene)
    records = run_scene(scene, "lmdeploy", {"max_batch_size": str(slots), "max_prefill_token_num": str(budget)})
    inside = set()
    for record, prefills in with_prefills(scene, records):
        assert all(min(map(rank.get, record.grants)) < rank[name] for name in record.preempted)
        assert sum(record.grants[name] for name in prefills) <= budget, picture(scene, records)
        inside |= set(record.grants)
        assert len(inside) <= slots, picture(scene, records)
        inside -= set(record.finished)


@given(scene=scenes(), prompts=st.integers(1, 3), budget=st.integers(1, 40))
def test_vllm_caps_the_prompts_of_a_step(scene, prompts, budget):
    """No step computes more prompts than the cap (a last chunk of one token may pass for a decode); all are served."""
    settings = {"max_num_partial_prefills": str(prompts), "max_num_batched_tokens": str(budget)}
    records = run_scene(scene, "vllm", settings)
    assert {name for record in records for name in record.finished} == set(ranks(scene))
    for record, prefills in with_prefills(scene, records):
        assert sum(record.grants[name] > 1 for name in prefills) <= prompts, picture(scene, records)


@pytest.mark.parametrize("policy", ["vllm", "vllm_v0", "sarathi", "sarathi_serve", "splitfuse", "lmdeploy"])
@pytest.mark.parametrize(("prompt", "output"), [(30, 2), (10, 30)])
def test_what_can_never_fit_is_refused(policy, prompt, output):
    """A prompt, or an output, that outgrows all memory is rejected, and its neighbours are served."""
    requests = [
        {"id": "A", "arrival": 0, "prompt": prompt, "output": output},
        {"id": "B", "arrival": 0, "prompt": 5, "output": 3},
    ]
    scene = parse_scene({"block_size": 4, "num_blocks": 5, "requests": requests})
    records = run_scene(scene, policy)
    assert [name for record in records for name in record.rejected] == ["A"], picture(scene, records)
    assert [name for record in records for name in record.finished] == ["B"], picture(scene, records)
