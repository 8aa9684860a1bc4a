"""Start-up truth: what is promised is what the pool holds."""

import pytest

from headway.engine import EngineConfig
from headway.engine.limits import resolve_limits
from headway.errors import BadSetting
from headway.sched import PlanLimits


def resolve(context=8192, token_bytes=1000, free_bytes=1 << 40, plan=None, **settings):
    return resolve_limits(
        EngineConfig(**settings),
        plan or PlanLimits(),
        context_length=context,
        token_bytes=token_bytes,
        free_bytes=free_bytes,
    )


def test_context_is_lowered_to_the_pool():
    """Without a given context the pool decides, and the model's own figure is remembered."""
    limits = resolve(num_blocks=10)
    assert (limits.max_model_len, limits.lowered_from) == (160, 8192)


def test_watermark_counts():
    """Blocks that admission keeps free hold no part of a sequence."""
    assert resolve(num_blocks=10, watermark=0.2).max_model_len == 128


def test_given_context_must_fit():
    """A given context that the pool, the model or the policy cannot hold is refused with both numbers."""
    with pytest.raises(BadSetting, match=r"200.*160"):
        resolve(num_blocks=10, max_model_len=200)
    with pytest.raises(BadSetting, match=r"9000.*8192"):
        resolve(num_blocks=1000, max_model_len=9000)
    with pytest.raises(BadSetting, match=r"500.*at most 400"):
        resolve(num_blocks=1000, max_model_len=500, plan=PlanLimits(max_total=400))


def test_memory_sizes_the_pool():
    """Bytes become whole blocks; no block at all is refused, and so is memory that is not there."""
    assert resolve(kv_cache_memory=100_000).num_blocks == 6
    with pytest.raises(BadSetting, match="no block"):
        resolve(kv_cache_memory=100)
    with pytest.raises(BadSetting, match="free"):
        resolve(num_blocks=10, free_bytes=1000)


def test_sizes_exclude_each_other():
    """Blocks and bytes both size the pool; giving both is a contradiction."""
    with pytest.raises(BadSetting, match="one of them"):
        EngineConfig(num_blocks=1, kv_cache_memory=1)


@pytest.mark.parametrize(
    "setting",
    [
        {"block_size": 0},
        {"max_num_seqs": 0},
        {"max_num_batched_tokens": 0},
        {"watermark": 1.0},
        {"watermark": float("nan")},
        {"num_blocks": -1},
        {"max_model_len": 1},
        {"prefix_cache": "tree"},
        {"threads": 0},
        {"block_size": True},
    ],
)
def test_bounds(setting):
    """Each setting out of range is refused by name."""
    with pytest.raises(BadSetting, match=next(iter(setting))):
        EngineConfig(**setting)
