"""Random scenes for laws that hold for every policy."""

from hypothesis import strategies as st

from headway.sim import Scene, parse_scene


@st.composite
def scenes(draw, *, max_requests=8, with_prefixes=False, with_choices=False) -> Scene:
    """A scene in which each request fits the pool alone, but by far not all of them together."""
    block_size = draw(st.integers(1, 6))
    requests = []
    for position in range(draw(st.integers(1, max_requests))):
        prompt = draw(st.integers(1, 24))
        output = draw(st.integers(1, 12))
        entry = {
            "id": "ABCDEFGHIJKLMNOP"[position],
            "arrival": draw(st.integers(0, 12)),
            "prompt": prompt,
            "output": output,
            "max_output": output + draw(st.sampled_from([0, 0, 1, 5])),
            "priority": draw(st.integers(0, 2)),
            "tenant": draw(st.sampled_from(["u", "v"])),
        }
        if with_prefixes and draw(st.booleans()):
            entry["prefix"] = {"group": draw(st.sampled_from("gh")), "tokens": draw(st.integers(0, prompt))}
        if with_choices and draw(st.integers(0, 3)) == 0:
            entry["n"] = draw(st.integers(2, 3))
        requests.append(entry)
    longest = max(entry["prompt"] + entry["max_output"] for entry in requests)
    num_blocks = -(-longest // block_size) + draw(st.integers(1, 6))
    return parse_scene({"block_size": block_size, "num_blocks": num_blocks, "requests": requests})
