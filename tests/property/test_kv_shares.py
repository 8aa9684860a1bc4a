"""Shares of the KV blocks under `headway`: never more than the most, what is guaranteed is kept, nobody starves."""

from hypothesis import given
from hypothesis import strategies as st

from headway.core import Finished, SamplingParams
from headway.engine.door import Extras
from tests.support.engines import simulated_engine


def run(requests, *, num_blocks, shares, **settings):
    """Run (tenant, prompt, output) through a core; the blocks that each tenant holds after every step."""
    lengths = {f"r{place}": output for place, (_, _, output) in enumerate(requests)}
    engine = simulated_engine(policy="headway", num_blocks=num_blocks, lengths=lengths, prefix_cache="none", **settings)
    core, ended, held = engine.core, set(), []
    core.listen(lambda events: ended.update(event.request.id for event in events if isinstance(event, Finished)))
    for place, (tenant, prompt, output) in enumerate(requests):
        guaranteed, most = shares.get(tenant, (0.0, 1.0))
        params = SamplingParams(max_tokens=output, ignore_eos=True, temperature=0.0)
        extras = Extras(tenant=tenant, kv_guaranteed=guaranteed, kv_most=most)
        core.submit(engine.door.request(f"r{place}", [place % 50 + 5] * prompt, params, 0.0, extras))
    while core.has_work:
        core.step()
        core.check()
        now = dict.fromkeys((tenant for tenant, _, _ in requests), 0)
        for seq in core.scheduler.queues.running:
            now[seq.request.tenant] += len(core.scheduler.kv.tables[seq.id].block_ids)
        held.append(now)
        assert len(held) < 5000, "somebody waits for ever"
    assert ended == set(lengths)
    return held


REQUESTS = st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 30), st.integers(1, 18)), min_size=1, max_size=14)


@given(requests=REQUESTS, most=st.sampled_from([0.4, 0.5, 0.75]), guaranteed=st.sampled_from([0.0, 0.2, 0.4]))
def test_a_tenant_never_holds_more_than_its_most_and_everybody_ends(requests, most, guaranteed):
    """After every step: blocks held by `a` ≤ kv_most of all; whatever is guaranteed to `b`, every request ends."""
    shares = {"a": (0.0, most), "b": (guaranteed, 1.0)}
    held = run(requests, num_blocks=32, shares=shares)
    assert max(now.get("a", 0) for now in held) <= int(most * 32)


def test_what_is_guaranteed_is_left_while_its_owner_waits():
    """`a` came first with enough to fill the memory twice; `b`, who waits for its turn too, gets its half."""
    requests = [("a", 16, 4)] * 12 + [("b", 16, 4)] * 6
    common = {"num_blocks": 20, "max_num_batched_tokens": 64}
    free = run(requests, shares={}, policy_settings={"fair": "false"}, **common)
    kept = run(requests, shares={"b": (0.5, 1.0)}, policy_settings={"fair": "false"}, **common)
    assert free[0]["b"] == 0
    assert max(now["a"] for now in free) > 10
    assert all(now["a"] <= 10 for now in kept if now["b"])
    assert kept[1]["b"] > 0


def test_what_nobody_asks_for_is_lent():
    """A guarantee of a tenant that sends nothing, and a share of one that is alone: the whole memory is used."""
    held = run(
        [("a", 16, 4)] * 12, num_blocks=20, shares={"a": (0.1, 1.0), "b": (0.9, 1.0)}, max_num_batched_tokens=200
    )
    assert max(now["a"] for now in held) > 15
