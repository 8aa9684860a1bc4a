"""SARATHI, Sarathi-Serve and the caps of vLLM: sizes, and settings that contradict each other."""

import pytest

from headway.errors import BadSetting
from headway.sched import make_policy
from headway.sim import parse_scene, run_scene


def test_a_chunk_leaves_room_for_the_decodes_of_its_tile():
    """17 decodes beside chunks of 256 on tiles of 128: a chunk of 239, 256 tokens in all."""
    decodes = [{"id": f"d{at}", "arrival": 0, "prompt": 1, "output": 99} for at in range(17)]
    late = {"id": "P", "arrival": 30, "prompt": 1024, "output": 1}
    scene = parse_scene({"block_size": 16, "num_blocks": 400, "requests": [*decodes, late]})
    records = run_scene(scene, "sarathi", {"chunk_size": "256", "tile_size": "128", "max_num_seqs": "18"})
    grants = [record.grants for record in records if "P" in record.grants]
    assert [step["P"] for step in grants] == [239, 239, 239, 239, 68]
    assert [sum(step.values()) for step in grants[:4]] == [256] * 4


def test_without_tiles_four_chunks_carry_68_decodes():
    """A prompt of 1024 in chunks of 256 with 18 places gives 4 x 17 = 68 decodes a ride."""
    decodes = [{"id": f"d{at}", "arrival": 0, "prompt": 1, "output": 99} for at in range(17)]
    late = {"id": "P", "arrival": 30, "prompt": 1024, "output": 1}
    scene = parse_scene({"block_size": 16, "num_blocks": 400, "requests": [*decodes, late]})
    records = run_scene(scene, "sarathi", {"chunk_size": "256", "max_num_seqs": "18"})
    grants = [record.grants for record in records if "P" in record.grants]
    assert [step["P"] for step in grants] == [256] * 4
    assert sum(len(step) - 1 for step in grants) == 68


@pytest.mark.parametrize(
    ("policy", "settings", "reason"),
    [
        ("sarathi", {"chunk_size": "100", "tile_size": "64"}, "no multiple of tile_size"),
        ("sarathi_serve", {"chunk_high": "64"}, "a schedule needs both"),
        ("sarathi_serve", {"chunk_low": "64"}, "a schedule needs both"),
        ("sarathi_serve", {"chunk_low": "64", "chunk_high": "1024"}, "token_budget"),
        ("splitfuse", {"token_budget": "0"}, "at least 1"),
        ("lmdeploy", {"max_batch_size": "0"}, "at least 1"),
        ("vllm", {"max_long_partial_prefills": "1"}, "long_prefill_token_threshold"),
        (
            "vllm",
            {
                "max_long_partial_prefills": "3",
                "max_num_partial_prefills": "2",
                "long_prefill_token_threshold": "8",
            },
            "above max_num_partial_prefills",
        ),
    ],
)
def test_contradictions_are_refused(policy, settings, reason):
    """Parameters that cannot work together are named at the start, with the reason."""
    with pytest.raises(BadSetting, match=reason):
        make_policy(policy, settings)
