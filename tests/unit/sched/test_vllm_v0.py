"""Forks and gangs of vLLM V0 on the real block tables, and refusals."""

import pytest

from headway.clock import VirtualClock
from headway.core import Request, SamplingParams, SequenceFinished
from headway.core.stopping import token_stop
from headway.engine import EngineCore
from headway.errors import BadSetting
from headway.executor.simulated import SimulatedExecutor
from headway.kv import KVCache, NoPrefixCache
from headway.sched import Scheduler, make_policy


def core_with(num_blocks, *, num_host_blocks=None, **settings):
    """A core with blocks of 4, whose memory the test looks into."""
    kv = KVCache(num_blocks, 4, NoPrefixCache(), num_host_blocks)
    clock = VirtualClock()
    executor = SimulatedExecutor(num_blocks, 4, clock, lambda batch: 1.0, {})
    return EngineCore(Scheduler(make_policy("vllm_v0", settings), kv, token_stop), executor, clock), kv


def submit(core, name, *, prompt, output, n=1):
    params = SamplingParams(n=n, temperature=0.0, max_tokens=output)
    core.submit(Request(id=name, prompt_ids=tuple(range(1, prompt + 1)), max_output=output, params=params))


def test_two_samples_copy_one_block_on_write():
    """A prompt of 6 and two samples: one copy in the first decode, 3 blocks then and 5 after the third, not 4 and 6."""
    core, kv = core_with(8)
    submit(core, "A", prompt=6, output=9, n=2)
    core.step()
    prompt_blocks = list(kv.block_table("A"))
    assert kv.block_table("A/1") == prompt_blocks
    assert [kv.pool.refs[block] for block in prompt_blocks] == [2, 2]
    used = []
    for _ in range(3):
        core.step()
        core.check()
        used.append(kv.num_blocks - kv.num_free)
    assert used == [3, 3, 5]
    assert kv.stats.num_copied == 1
    tables = kv.block_table("A"), kv.block_table("A/1")
    assert tables[0][0] == tables[1][0] == prompt_blocks[0]
    assert kv.pool.refs[prompt_blocks[0]] == 2
    assert (prompt_blocks[1] in tables[0]) + (prompt_blocks[1] in tables[1]) == 1


def test_both_beams_go_on_from_one_parent():
    """The beam that dies frees its own blocks; the fork shares its parent's, and the next write copies the last."""
    core, kv = core_with(8)
    submit(core, "A", prompt=6, output=9, n=2)
    for _ in range(4):
        core.step()
    kv.release("A/1")
    assert kv.num_blocks - kv.num_free == 3
    kv.fork("A", "A/1")
    table = list(kv.block_table("A"))
    assert [kv.pool.refs[block] for block in table] == [2, 2, 2]
    copies = kv.extend("A", 9, 10)
    assert copies == [(table[2], kv.block_table("A")[2])]
    assert kv.block_table("A/1") == table
    kv.check()


def test_choices_share_their_prompt_in_the_host_tier():
    """A gang that is swapped out and in again holds a shared block once, there and back here."""
    core, kv = core_with(8)
    submit(core, "A", prompt=8, output=12)
    core.step()
    submit(core, "B", prompt=6, output=6, n=2)
    while not kv.swapped:
        core.step()
    first, second = kv.swapped["B"], kv.swapped["B/1"]
    assert first[0] == second[0]
    assert len({*first, *second}) == len(first) + len(second) - 1 == kv.host.num_used
    while kv.swapped:
        core.step()
        core.check()
    shared = set(kv.block_table("B")) & set(kv.block_table("B/1"))
    assert len(shared) == 1
    assert kv.host.num_used == 0


@pytest.mark.parametrize("num_host_blocks", [0, 2])
def test_a_gang_without_room_in_the_host_tier_is_computed_again(num_host_blocks):
    """No room to swap: all its choices are recomputed, come back together, and end."""
    core, kv = core_with(8, num_host_blocks=num_host_blocks)
    ended = []
    core.listen(lambda events: ended.extend(event.seq_id for event in events if isinstance(event, SequenceFinished)))
    submit(core, "A", prompt=8, output=12)
    core.step()
    submit(core, "B", prompt=6, output=6, n=2)
    while core.has_work:
        core.step()
        core.check()
    assert sorted(ended) == ["A", "B", "B/1"]
    assert kv.stats.num_swapped_out == 0


def test_settings_are_checked():
    """Out of bounds and unknown words are refused with what is allowed."""
    with pytest.raises(BadSetting, match="mixed, prefill_first, chunked"):
        make_policy("vllm_v0", {"mode": "both"})
    with pytest.raises(BadSetting, match="between 0 and"):
        make_policy("vllm_v0", {"watermark": "1"})
