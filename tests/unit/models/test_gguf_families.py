"""What GGUF files say of families, windows and RoPE, and what is refused."""

import dataclasses

import numpy as np
import pytest

from headway.errors import BadModelFile
from headway.models import DividedRope, GgufFile, LinearRope, random_weights
from tests.support.families import family_weights, write_family_gguf
from tests.support.tiny_model import named_tensors, tiny_config, write_gguf


def write(path, tensors=None, config=None, **metadata):
    """A tiny GGUF file with further tensors and metadata; a tensor of None is left out."""
    weights = random_weights(config or tiny_config(), seed=0)
    named = named_tensors(weights) | (tensors or {})
    kept = {name: array for name, array in named.items() if array is not None}
    write_gguf(path, weights.config, kept, metadata={key.replace("__", "."): value for key, value in metadata.items()})
    return path


def refusal(path):
    with pytest.raises(BadModelFile) as caught:
        GgufFile.open(path)
    message = str(caught.value)
    assert "\n" not in message
    assert str(path) in message
    return message


@pytest.mark.parametrize(
    ("name", "architecture", "pairs"),
    [
        ("llama2", "llama", "interleaved"),
        ("mistral", "llama", "interleaved"),
        ("qwen2", "qwen2", "half_split"),
        ("qwen3", "qwen3", "half_split"),
    ],
)
def test_families_and_their_pairs(tmp_path, name, architecture, pairs):
    """GGUF files of Llamas turn neighbouring features, others the two halves of a head."""
    weights = family_weights(name)
    write_family_gguf(tmp_path / "model.gguf", weights)
    config = GgufFile.open(tmp_path / "model.gguf").config
    assert (config.architecture, config.rope_pairs) == (architecture, pairs)
    assert (config.qkv_bias, config.qk_norm) == (weights.config.qkv_bias, weights.config.qk_norm)


def test_rope_scaling(tmp_path):
    """Linear under both of its keys, and a tensor of divisors."""
    path = tmp_path / "model.gguf"
    assert GgufFile.open(write(path, llama__rope__scaling__type="none")).config.rope_scaling is None
    linear = {"llama__rope__scaling__type": "linear", "llama__rope__scaling__factor": 4.0}
    assert GgufFile.open(write(path, **linear)).config.rope_scaling == LinearRope(4.0)
    assert GgufFile.open(write(path, llama__rope__scale_linear=2.0)).config.rope_scaling == LinearRope(2.0)
    divisors = np.linspace(1, 8, 8, dtype=np.float32)
    file = GgufFile.open(write(path, {"rope_freqs.weight": divisors}))
    assert file.config.rope_scaling == DividedRope(tuple(divisors.tolist()))


def test_a_sliding_window_bounds_the_context(tmp_path):
    """Nothing beyond the window is accepted, where it would be computed without one."""
    path = tmp_path / "model.gguf"
    assert GgufFile.open(write(path, llama__attention__sliding_window=100)).config.context_length == 100
    assert GgufFile.open(write(path, llama__attention__sliding_window=4096)).config.context_length == 512
    assert GgufFile.open(write(path, llama__attention__sliding_window=0)).config.context_length == 512


@pytest.mark.parametrize("kind", ["yarn", "longrope", "dynamic"])
def test_other_rope_scalings_are_named(tmp_path, kind):
    """A scaling that is not written here would give wrong positions."""
    message = refusal(write(tmp_path / "model.gguf", llama__rope__scaling__type=kind))
    assert f"RoPE scaling '{kind}' is not supported; supported: none, linear, and Llama 3's" in message


def test_divisors_that_do_not_fit_are_refused(tmp_path):
    """Another length, another shape, or together with another scaling."""
    path = tmp_path / "model.gguf"
    assert "3 divisors for 8 pairs" in refusal(write(path, {"rope_freqs.weight": np.ones(3, np.float32)}))
    assert "not a float32 list" in refusal(write(path, {"rope_freqs.weight": np.ones((8, 32), np.float32)}))
    linear = {"llama__rope__scaling__type": "linear", "llama__rope__scaling__factor": 4.0}
    assert "together" in refusal(write(path, {"rope_freqs.weight": np.ones(8, np.float32)}, **linear))


def test_tensors_are_those_of_the_family(tmp_path):
    """A bias or a norm that a family lacks is not ignored; one that it has is not done without."""
    path = tmp_path / "model.gguf"
    assert "'blk.0.attn_q.bias' belongs to no" in refusal(write(path, {"blk.0.attn_q.bias": np.ones(64, np.float32)}))
    qwen2 = dataclasses.replace(tiny_config(), architecture="qwen2", qkv_bias=True)
    assert "'blk.1.attn_k.bias' is missing" in refusal(write(path, {"blk.1.attn_k.bias": None}, qwen2))
    qwen3 = dataclasses.replace(tiny_config(), architecture="qwen3", qk_norm=True)
    assert "'blk.0.attn_q_norm.weight' is missing" in refusal(write(path, {"blk.0.attn_q_norm.weight": None}, qwen3))
