"""What ALGORITHMS promises of single policies beside the laws of all, on random scenes."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.sched.policies.deadline import Deadline
from headway.sched.policies.fastserve import FastServe
from headway.sched.policies.sglang import Sglang
from headway.sim import parse_scene, picture, run_scene
from tests.support.fairness import bound, drift
from tests.support.scenes import scenes


def roomy(scene):
    """The same requests with memory for all of them at once."""
    return replace(scene, num_blocks=400)


def alike(scene, by):
    """Request ids in order of this key, then of arrival."""
    return [request.id for request in sorted(scene.requests, key=lambda request: (by(request), request.arrival))]


@given(scene=scenes(), size=st.integers(1, 4), variant=st.sampled_from(["no_waste", "early_return"]))
def test_static_variants_compute_no_dead_rows_and_let_nobody_join(scene, size, variant):
    """§1: a batch ends before the next begins; `no_waste` returns it together, `early_return` each at its end."""
    records = run_scene(scene, "static", {"max_batch_size": str(size), "variant": variant})
    outputs = {request.id: request.output for request in scene.requests}
    members, num_steps, ended = set(), 0, set()
    for record in records:
        assert not record.wasted_rows
        if not num_steps:
            members = set(record.grants)
        num_steps += 1
        assert set(record.grants) <= members, picture(scene, records)
        done = {name for name in members if outputs[name] == num_steps}
        ended |= done
        returned = done if variant == "early_return" else members if ended == members else set()
        assert set(record.finished) == returned, picture(scene, records)
        if ended == members:
            num_steps, ended = 0, set()


@given(scene=scenes(), order=st.sampled_from(["fcfs", "priority"]), budget=st.integers(1, 30))
def test_vllm_takes_from_the_last_in_order_and_admits_nobody_then(scene, order, budget):
    """§4: victims are the last of those under way; a step that preempted grants only to who was there before."""
    requests = [replace(request, arrival=at) for at, request in enumerate(scene.requests)]
    scene = replace(scene, requests=requests)
    place = alike(scene, (lambda request: request.priority) if order == "priority" else (lambda request: 0))
    records = run_scene(scene, "vllm", {"order": order, "max_num_batched_tokens": str(budget)})
    inside = set()
    for record in records:
        if record.preempted:
            last = sorted(inside, key=place.index)[-len(record.preempted) :]
            assert set(record.preempted) == set(last), picture(scene, records)
            assert set(record.grants) <= inside - set(last), picture(scene, records)
        inside = (inside | set(record.grants)) - set(record.preempted) - set(record.finished)


class HighestFirst(FastServe):
    """Fails where a job runs while another one of a higher level is left out."""

    def plan(self, view):
        plan = super().plan(view)
        granted = {entry.seq.id for entry in plan.grants}
        left = {seq.id for seq in (*view.running, *view.swapped, *view.waiting)} - granted
        lowest = max(map(self._queues.level, granted), default=0)
        assert all(lowest <= self._queues.level(name) for name in left)
        return plan


@given(scene=scenes().map(roomy), size=st.integers(1, 3), after=st.sampled_from(["0", "4"]))
def test_fastserve_runs_the_highest_levels(scene, size, after):
    """§5: with memory for all, nobody of a lower level runs while one of a higher level is left out."""
    settings = {"max_batch_size": str(size), "promote_after": after, "init_unit": "4"}
    records = run_scene(scene, f"{__name__}:HighestFirst", settings)
    assert {name for record in records for name in record.finished} == {request.id for request in scene.requests}


@given(scene=scenes(), chunk=st.integers(1, 6))
def test_sarathi_ends_a_prompt_before_the_next(scene, chunk):
    """§6: chunks of a prompt follow each other, and no chunk of another stands between them."""
    records = run_scene(scene, "sarathi", {"chunk_size": str(chunk)})
    left = {request.id: request.prompt for request in scene.requests}
    underway = None
    for record in records:
        prompts = [name for name in record.grants if left[name] > 0]
        assert len(prompts) <= 1, picture(scene, records)
        assert prompts == [underway] or underway is None, picture(scene, records)
        for name in prompts:
            left[name] -= record.grants[name]
            underway = name if left[name] else None


@given(scene=scenes(), budget=st.integers(1, 30))
def test_sarathi_serve_keeps_old_prompts_and_goes_on_with_them_first(scene, budget):
    """§7: a prompt under way that is older than every decode is no victim, and no new one passes those under way."""
    requests = [replace(request, arrival=at) for at, request in enumerate(scene.requests)]
    scene = replace(scene, requests=requests)
    records = run_scene(scene, "sarathi_serve", {"token_budget": str(budget)})
    place = alike(scene, lambda request: 0)
    known = {request.id: request.prompt for request in requests}
    done = dict.fromkeys(known, 0)
    inside, decoding = set(), set()
    for record in records:
        oldest = min(map(place.index, decoding), default=len(place))
        for name in record.preempted:
            assert name in decoding or place.index(name) > oldest, picture(scene, records)
            done[name] = 0
        inside, decoding = inside - set(record.preempted), decoding - set(record.preempted)
        if set(record.grants) - inside:
            assert inside <= set(record.grants), picture(scene, records)
        for name, num_tokens in record.grants.items():
            done[name] += num_tokens
            if done[name] == known[name]:
                known[name] += 1
                decoding.add(name)
        inside = (inside | set(record.grants)) - set(record.finished)
        decoding -= set(record.finished)


class WithinItsBet(Sglang):
    """Fails on an admission beside others that the bet on their outputs does not cover."""

    def plan(self, view):
        free = view.ledger.num_free * view.ledger.block_size
        decoding = [seq for seq in view.running if seq.is_decoding]
        owed = self._ratio.value * sum(seq.request.max_output - seq.num_output for seq in decoding)
        pending = {seq.id: view.ledger.num_pending(seq) for seq in view.waiting}
        plan = super().plan(view)
        new = [entry for entry in plan.grants if entry.seq.id in pending]
        whole = [entry.seq for entry in new if entry.num_tokens == pending[entry.seq.id]]
        wanted = sum(entry.num_tokens for entry in new) + sum(seq.request.max_output for seq in whole)
        assert wanted + owed <= free or not view.running or not new
        return plan


@given(scene=scenes(with_prefixes=True), ratio=st.sampled_from(["0.1", "0.7", "1"]))
def test_sglang_admits_within_its_bet(scene, ratio):
    """§9: what is admitted, with its whole output, and the assumed rest of the others fits into what is free."""
    settings = {"new_token_ratio": ratio, "min_new_token_ratio": ratio, "chunked_prefill_size": "12"}
    run_scene(scene, f"{__name__}:WithinItsBet", settings | {"prefix_cache": "radix"})


@given(
    shapes=st.lists(st.tuples(st.sampled_from("gh"), st.integers(6, 12), st.integers(1, 4)), min_size=3, max_size=8),
    order=st.sampled_from(["dfs-weight", "lpm"]),
)
def test_sglang_computes_each_branch_of_an_offline_queue_once(shapes, order):
    """§9: depth first, a cache that just holds the longest request is as good as an endless one."""
    requests = [
        {"id": str(at), "prompt": shared + own, "output": 2, "prefix": {"group": name, "tokens": shared}}
        for at, (name, shared, own) in enumerate(shapes)
    ]
    num_blocks = max(entry["prompt"] for entry in requests) + 2 if order == "dfs-weight" else 400
    scene = parse_scene({"block_size": 1, "num_blocks": num_blocks, "requests": requests})
    records = run_scene(scene, "sglang", {"order": order, "max_running_requests": "1"})
    branches = sum(max((shared for group, shared, _ in shapes if group == name), default=0) for name in "gh")
    computed = sum(sum(record.grants.values()) for record in records)
    assert computed == branches + sum(own + 1 for _, _, own in shapes), picture(scene, records)


@given(scene=scenes(), size=st.integers(1, 8))
def test_trtllm_has_room_for_whom_it_lets_in_to_the_end(scene, size):
    """§10: without eviction, blocks to completion of all who started fit into memory."""
    blocks = {
        request.id: -(-(request.prompt + request.max_output - 1) // scene.block_size) for request in scene.requests
    }
    records = run_scene(scene, "trtllm", {"max_batch_size": str(size)})
    inside = set()
    for record in records:
        inside |= set(record.grants)
        assert sum(map(blocks.__getitem__, inside)) <= scene.num_blocks, picture(scene, records)
        inside -= set(record.finished)


@given(scene=scenes().map(roomy), patience=st.integers(0, 6))
def test_tgi_forces_a_prefill_in_time(scene, patience):
    """§11: where memory allows, nobody waits for more than max_waiting_tokens decodes, and one that was due."""
    records = run_scene(scene, "tgi", {"waiting_served_ratio": "1000", "max_waiting_tokens": str(patience)})
    for request in scene.requests:
        waited = [record for record in records if record.start_s >= request.arrival]
        num = next(at for at, record in enumerate(waited) if request.id in record.grants)
        assert num <= patience + 2, picture(scene, records)


@given(scene=scenes().map(roomy), target=st.sampled_from(["0.01", "1000"]))
def test_dynamic_batch_never_stops_whom_it_let_in(scene, target):
    """§13: however small the batch size becomes, whoever runs goes on running."""
    records = run_scene(scene, "dynamic_batch", {"tbt_target": target, "interval": "1", "width": "1"})
    inside = set()
    for record in records:
        assert inside <= set(record.grants), picture(scene, records)
        inside = (inside | set(record.grants)) - set(record.finished)


@pytest.mark.parametrize("policy", ["vtc", "headway"])
def test_who_was_idle_comes_back_without_credit(policy):
    """§15: from its return on, a tenant's service stays within the bound of the others', as if all began then."""
    requests = [
        {"id": f"{name}{at}", "arrival": arrival, "prompt": 8, "output": 4, "tenant": name}
        for name, arrival in (("u", 0), ("v", 60))
        for at in range(80)
    ]
    scene = parse_scene({"block_size": 4, "num_blocks": 10, "requests": requests})
    settings = {"max_num_batched_tokens": "12"} | ({"short_prompt_tokens": "0"} if policy == "headway" else {})
    tape = run_scene(scene, policy, settings)
    assert drift(scene, tape, since=60) <= bound(scene) < drift(scene, tape)


class InOrder(Deadline):
    """Fails on a prompt that is computed while one with a lower key, which can make it, too, is left out."""

    def plan(self, view):
        plan = super().plan(view)
        granted = {entry.seq.id for entry in plan.grants}
        keys = {seq.id: self.key(seq) for seq in (*view.running, *view.waiting) if not seq.is_decoding}
        last = max((key for name, key in keys.items() if name in granted), default=(False, 0.0))
        assert all(last <= key for name, key in keys.items() if name not in granted)
        return plan


@given(scene=scenes().map(roomy), alpha=st.sampled_from(["0", "0.5", "1000000"]))
def test_deadline_keeps_to_its_key(scene, alpha):
    """§20: with memory for all, prompts are computed in the order of the key, relegated ones last."""
    requests = [replace(request, ttft=10.0 * (request.priority + 1)) for request in scene.requests]
    settings = {"alpha": alpha, "chunk_size": "9", "prefill_throughput": "9"}
    run_scene(replace(scene, requests=requests), f"{__name__}:InOrder", settings)


@given(prompts=st.lists(st.integers(1, 20), min_size=2, max_size=6, unique=True), seed=st.randoms())
def test_deadline_lies_between_two_known_orders(prompts, seed):
    """§20: α = 0 is earliest deadline first, a very large α shortest prompt first."""
    ttfts = [1000 + 10 * at for at in range(len(prompts))]
    seed.shuffle(ttfts)
    requests = [
        {"id": str(at), "prompt": num, "output": 1, "ttft": ttft}
        for at, (num, ttft) in enumerate(zip(prompts, ttfts, strict=True))
    ]
    scene = parse_scene({"block_size": 4, "num_blocks": 400, "requests": requests})
    for alpha, wanted in (("0", ttfts), ("1000000", prompts)):
        records = run_scene(scene, "deadline", {"alpha": alpha, "chunk_size": "3", "prefill_throughput": "3"})
        ended = [int(name) for record in records for name in record.finished]
        assert ended == sorted(range(len(prompts)), key=wanted.__getitem__)


def test_deadline_chunks_grow_beside_those_who_are_not_waited_for():
    """§20: beside a decode of a batch request, whose tokens are due later, a prompt gets a larger chunk."""
    long = {"id": "long", "arrival": 1, "prompt": 4000, "output": 1, "ttft": 100}
    chunks = []
    for terms in ({"ttft": 0.1}, {"deadline": 100}):
        beside = {"id": "beside", "prompt": 8, "output": 8, **terms}
        scene = parse_scene({"block_size": 16, "num_blocks": 4000, "requests": [beside, long]})
        records = run_scene(scene, "deadline", {"tbt": "0.05", "tbt_batch": "60"})
        chunks.append(next(record.grants["long"] for record in records if "long" in record.grants))
    assert chunks[0] < chunks[1]
