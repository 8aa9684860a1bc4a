"""Two tenants who always have work, and how far apart the services drift that they receive."""

from hypothesis import strategies as st

from headway.sim import parse_scene


@st.composite
def backlogs(draw):
    """A scene in which everything arrives at once."""
    requests = [
        {
            "id": f"{tenant}{at}",
            "prompt": draw(st.integers(1, 12)),
            "output": draw(st.integers(1, 8)),
            "tenant": tenant,
            "weight": 1.0,
        }
        for tenant in "uv"
        for at in range(draw(st.integers(4, 14)))
    ]
    draw(st.randoms(use_true_random=False)).shuffle(requests)
    return parse_scene({"block_size": 4, "num_blocks": draw(st.integers(6, 14)), "requests": requests})


def drift(scene, tape, *, since=0):
    """Largest change of the difference between both services, in weighted tokens, while both have work queued.

    Only what is received from the moment `since` on counts. A prompt is received at its first grant; what a victim
    computes again counts for nobody.
    """
    by_id = {request.id: request for request in scene.requests}
    started, emitted, served = set(), dict.fromkeys(by_id, 0), {"u": 0.0, "v": 0.0}
    computed = dict.fromkeys(by_id, 0)
    spread = []
    for record in tape:
        if record.start_s >= since and not spread:
            spread.append(served["u"] - served["v"])
        for name in record.preempted:
            computed[name] = 0
        for name, num_tokens in record.grants.items():
            tenant = by_id[name].tenant
            if name not in started:
                started.add(name)
                served[tenant] += by_id[name].prompt
            computed[name] += num_tokens
            if computed[name] >= by_id[name].prompt + emitted[name]:
                emitted[name] += 1
                served[tenant] += 2
        if {by_id[name].tenant for name in by_id.keys() - started} != {"u", "v"}:
            break
        if spread:
            spread.append(served["u"] - served["v"])
    return max(spread, default=0.0) - min(spread, default=0.0)


def bound(scene):
    """VTC's: 2 × max(longest prompt, 2 × tokens that fit the pool)."""
    longest = max(request.prompt for request in scene.requests)
    return 2 * max(longest, 2 * scene.num_blocks * scene.block_size)
