"""Short prompts that pass another tenant's long one in the `headway` policy."""

import pytest

from headway.core import Request, SamplingParams, StepRecord
from tests.support.engines import simulated_engine

ROOM = 16


def ask(name, num_prompt):
    params = SamplingParams(temperature=0.0, max_tokens=2, ignore_eos=True)
    ids = tuple(20 + (sum(map(ord, name)) + at) % 50 for at in range(num_prompt))
    return Request(id=name, prompt_ids=ids, max_output=2, params=params, tenant=name)


def grants(monkeypatch, *sizes, **settings):
    """What a step grants that has room for 16 tokens of prefill: a prompt of 400 is under way and others come."""
    engine = simulated_engine(policy="headway", num_blocks=400, max_num_batched_tokens=512, **settings)
    core, records = engine.core, []
    monkeypatch.setattr(core.scheduler.policy._controller, "budget", lambda *_: ROOM)
    core.listen(lambda events: records.extend(event for event in events if isinstance(event, StepRecord)))
    core.submit(ask("long", 400))
    core.step()
    for at, num_prompt in enumerate(sizes):
        core.submit(ask(f"s{at}", num_prompt))
    core.step()
    assert records[0].grants == {"long": ROOM}
    return records[1].grants


def test_a_short_prompt_passes_whole(monkeypatch):
    """It is not chopped into steps of 16: its first token comes with this one, which is for nobody else."""
    assert grants(monkeypatch, 100) == {"s0": 100}


def test_short_prompts_pass_up_to_one_of_the_greatest_length(monkeypatch):
    """192 tokens of them in a step; the second goes on in the next one."""
    assert grants(monkeypatch, 150, 150) == {"s0": 150, "s1": 42}


def test_a_little_one_leaves_the_rest_of_half_the_room(monkeypatch):
    """Or a tile, whichever is more, as far as there is room."""
    assert grants(monkeypatch, 4) == {"s0": 4, "long": ROOM - 4}


@pytest.mark.parametrize("num_prompt", [100, 300])
def test_nobody_passes_the_room_for_nothing(monkeypatch, num_prompt):
    """Under a target for the gap between tokens steps stay within their room; a long prompt waits for its turn."""
    settings = {"itl_target_ms": 50.0} if num_prompt == 100 else {}
    found = grants(monkeypatch, num_prompt, **settings)
    assert sum(found.values()) == ROOM
