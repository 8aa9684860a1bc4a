import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.core import Grant, Request, Sequence, StepPlan
from headway.errors import BadSetting
from headway.kv import Hit, KVCache, make_prefix_cache
from headway.sched.parts.newtokens import NewTokenRatio, estimated_ratio, retraction_order
from headway.sched.parts.prefix_order import heaviest_branch_first, longest_prefix_first, siblings
from headway.sched.policies.sglang import Order, Sglang
from headway.sim import parse_scene, run_scene
from tests.support.scenes import scenes


def waiting(name, *tokens, output=4):
    """A sequence that waits with these tokens."""
    return Sequence(Request(id=name, prompt_ids=tokens, max_output=output))


def serve(kv, name, prompt, outputs):
    """Let a request come, compute and end; returns its cached tokens. The last output never gets KV."""
    tokens = [*prompt, *outputs]
    hit = kv.match(prompt, "")
    kv.admit(name, hit)
    kv.extend(name, hit.num_tokens, len(tokens) - 1)
    kv.publish(name, tokens, len(tokens) - 1, "")
    table = list(kv.block_table(name))
    kv.release(name)
    kv.check()
    return hit.num_tokens, table


@pytest.fixture
def tree():
    """A radix cache with pages of one token, after 1 2 3 4 5 → 6 7 and 1 2 3 8 9 → one token."""
    kv = KVCache(40, 1, make_prefix_cache("radix", 1))
    first = serve(kv, "R1", [1, 2, 3, 4, 5], [6, 7])
    second = serve(kv, "R2", [1, 2, 3, 8, 9], [10])
    return kv, first, second


def test_prefixes_are_split_extended_and_evicted_from_the_oldest_leaf(tree):
    """ALGORITHMS §9 (a): matches of 0, 3 and 6 tokens; [8 9] goes first, then [7 11], then [4 5 6], all whole."""
    kv, (cached_1, table_1), (cached_2, table_2) = tree
    cached_3, table_3 = serve(kv, "R3", [1, 2, 3, 4, 5, 6, 7, 11], [12])
    assert (cached_1, cached_2, cached_3) == (0, 3, 6)
    assert table_2[:3] == table_1[:3]
    assert table_3[:6] == table_1
    assert kv.prefix.evict(3) == [*reversed(table_2[3:]), *reversed(table_3[6:])]
    assert kv.prefix.evict(1) == [*reversed(table_1[3:])]


def test_longest_prefix_first(tree):
    """ALGORITHMS §9 (b): matches of 6, 0 and 4 tokens give a, c, b."""
    kv, _, _ = tree
    serve(kv, "R4", [1, 2, 3, 8, 30], [31])
    queue = [
        waiting("a", 1, 2, 3, 4, 5, 6, 20),
        waiting("b", 50, 51),
        waiting("c", 1, 2, 3, 8, 30),
    ]
    hits = {seq.id: kv.match(seq.token_ids, "") for seq in queue}
    assert {name: hit.num_tokens for name, hit in hits.items()} == {"a": 6, "b": 0, "c": 4}
    assert [seq.id for seq in longest_prefix_first(queue, lambda seq: hits[seq.id])] == ["a", "c", "b"]


def test_heaviest_branch_first(tree):
    """ALGORITHMS §9 (c): both under [4 5 6], then the one under [8], then who matches nothing."""
    kv, _, _ = tree
    queue = [
        waiting("free", 70, 71),
        waiting("8", 1, 2, 3, 8, 40),
        waiting("6", 1, 2, 3, 4, 5, 6, 41),
        waiting("6'", 1, 2, 3, 4, 5, 6, 42),
        waiting("3", 1, 2, 3, 43),
    ]
    ordered = heaviest_branch_first(queue, lambda seq: kv.match(seq.token_ids, ""))
    assert [seq.id for seq in ordered] == ["6", "6'", "8", "3", "free"]


def test_retraction():
    """ALGORITHMS §9 (d): the ratio over three, and the victim is the one with the fewest outputs."""
    assert estimated_ratio([(10, 100), (20, 100), (30, 100)]) == pytest.approx(120 / 301)
    running = []
    for name, num_output, num_prompt in (("x", 20, 2), ("y", 10, 2), ("z", 10, 3), ("w", 30, 9)):
        seq = waiting(name, *range(num_prompt), output=100)
        seq.token_ids += range(num_output)
        running.append(seq)
    assert [seq.id for seq in retraction_order(running)] == ["w", "x", "y", "z"]


def test_the_ratio_decays_to_its_least():
    """600 decode steps lead from 0.7 to 0.098, and no further."""
    ratio = NewTokenRatio(0.7, 0.098, 600)
    tape = run_scene(
        parse_scene({"block_size": 4, "num_blocks": 400, "requests": [{"id": "A", "prompt": 4, "output": 700}]}),
        "sglang",
        {},
    )
    assert len(tape) == 700
    for _ in tape:
        ratio.after_decode(_decode_plan())
    assert ratio.value == 0.098
    once = NewTokenRatio(0.7, 0.098, 600)
    once.after_decode(_decode_plan())
    assert 0.7 - once.value == pytest.approx(0.001003, abs=1e-6)


def _decode_plan():
    return StepPlan(grants=[Grant(waiting("a", 1), 1)])


@given(groups=st.lists(st.tuples(st.sampled_from("ghk"), st.integers(0, 3)), max_size=8))
def test_one_of_many_siblings_goes_ahead(groups):
    """Of those that start alike, the first in the queue stays; who finds enough in the cache is not put off."""
    queue = [waiting(str(at), *(ord(name) for _ in range(4)), at) for at, (name, _) in enumerate(groups)]
    cached = {str(at): 2 * num for at, (_, num) in enumerate(groups)}
    later = siblings(queue, lambda seq: Hit(cached[seq.id], ()), 4)
    seen = set()
    for seq, (name, _) in zip(queue, groups, strict=True):
        assert (seq.id in later) == (cached[seq.id] <= 4 and name in seen)
        if cached[seq.id] <= 4:
            seen.add(name)
    assert not siblings(queue, lambda seq: Hit.EMPTY, 0)


def test_a_batch_of_siblings_computes_its_prefix_once():
    """Ten prompts with 40 tokens in common: put off behind the others, all but one find them in the cache."""
    requests = [{"id": f"r{at}", "prompt": 44, "output": 2, "prefix": {"group": "g", "tokens": 40}} for at in range(10)]
    requests += [{"id": "x", "prompt": 30, "output": 2}]
    scene = parse_scene({"block_size": 4, "num_blocks": 400, "requests": requests})
    tape = run_scene(scene, "sglang", {"chunked_prefill_size": "74"})
    assert set(tape[0].grants) == {"r0", "x"}
    assert sum(record.grants.get(f"r{at}", 0) for record in tape for at in range(10)) == 44 + 9 * 4 + 10


class Checked(Sglang):
    """Fails on a step that mixes, and on a chunk that neither ends its prompt nor fills whole pages."""

    def plan(self, view):
        pending = {seq.id: view.ledger.num_pending(seq) for seq in (*view.running, *view.waiting)}
        plan = super().plan(view)
        assert len({entry.seq.is_decoding for entry in plan.grants}) <= 1
        for entry in plan.grants:
            assert entry.num_tokens == pending[entry.seq.id] or entry.num_tokens % view.ledger.block_size == 0
        assert len(plan.preemptions) < max(1, len(view.running)), "the last one is never retracted"
        return plan


@given(scene=scenes(with_prefixes=True), order=st.sampled_from([word.value for word in Order]))
def test_a_step_is_all_prefill_or_all_decode(scene, order):
    """Without mixing, a step that computes a prompt decodes nobody; every order brings everyone to an end."""
    settings = {"order": order, "chunked_prefill_size": "8", "in_batch_threshold": "4", "new_token_ratio": "0.2"}
    tape = run_scene(scene, f"{__name__}:Checked", settings | {"prefix_cache": "radix"})
    assert sorted(name for record in tape for name in record.finished) == sorted(r.id for r in scene.requests)


def test_contradictory_settings_are_refused():
    """A least ratio above the first one is a contradiction, and said so."""
    scene = parse_scene({"block_size": 4, "num_blocks": 4, "requests": [{"id": "A", "prompt": 1, "output": 1}]})
    with pytest.raises(BadSetting, match="min_new_token_ratio is"):
        run_scene(scene, "sglang", {"min_new_token_ratio": "0.9"})


class Doorless(Sglang):
    """Sees what a door would have refused."""

    refuses = True


@pytest.mark.parametrize("mixed", ["false", "true"])
def test_who_outgrows_all_memory_is_named(mixed):
    """It alone has all blocks and wants one more: the scene, not the policy, is at fault."""
    scene = parse_scene({"block_size": 4, "num_blocks": 4, "requests": [{"id": "A", "prompt": 6, "output": 60}]})
    with pytest.raises(BadSetting, match="A cannot run in this scene"):
        run_scene(scene, f"{__name__}:Doorless", {"mixed_chunk": mixed})
