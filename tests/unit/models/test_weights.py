import struct

import numpy as np
import pytest

from headway.errors import BadModelFile
from headway.models import GgufFile, load_weights, random_weights
from tests.support.tiny_model import named_tensors, tiny_config, write_tiny_gguf


@pytest.mark.parametrize("tied", [True, False])
def test_weights_come_back_from_a_file(tmp_path, tied):
    """What was written is what is loaded, float32; a tied head is the embedding itself, not a second copy."""
    path = tmp_path / "model.gguf"
    written = named_tensors(write_tiny_gguf(path, config=tiny_config(tied_embeddings=tied), seed=4))
    loaded = load_weights(GgufFile.open(path))
    assert (loaded.lm_head_VD is loaded.embedding_VD) is tied
    for name, array in named_tensors(loaded).items():
        assert array.dtype == np.float32
        np.testing.assert_array_equal(array, written[name])


def test_progress_counts_to_the_end(tmp_path):
    """Every layer is reported once, then all of it."""
    path = tmp_path / "model.gguf"
    write_tiny_gguf(path)
    reports = []
    load_weights(GgufFile.open(path), lambda done, total: reports.append((done, total)))
    assert reports == [(1, 3), (2, 3), (3, 3)]


@pytest.mark.parametrize("number", [float("nan"), float("inf"), -float("inf")])
def test_numbers_that_are_not_finite_are_refused(tmp_path, number):
    """Damage in the weights is found when they are loaded, and the tensor is named."""
    path = tmp_path / "model.gguf"
    write_tiny_gguf(path)
    info = GgufFile.open(path).tensors["blk.1.ffn_up.weight"]
    data = bytearray(path.read_bytes())
    data[info.offset + 400 : info.offset + 404] = struct.pack("<f", number)
    path.write_bytes(data)
    with pytest.raises(BadModelFile, match=r"blk\.1\.ffn_up\.weight.*not finite"):
        load_weights(GgufFile.open(path))


def test_a_seed_is_a_model():
    """The same seed gives the same weights, another seed others, and shapes are the config's."""
    config = tiny_config(tied_embeddings=False)
    first, again, other = (named_tensors(random_weights(config, seed)) for seed in (1, 1, 2))
    for name, array in first.items():
        assert array.dtype == np.float32
        np.testing.assert_array_equal(array, again[name])
        assert not np.array_equal(array, other[name])
    assert sum(array.size for array in first.values()) == config.num_params


@pytest.mark.model
def test_the_default_models_weights(real_file):
    """All of SmolLM2 loads; a row dequantised by hand agrees with the array."""
    weights = load_weights(real_file)
    assert sum(array.size for array in named_tensors(weights).values()) == 134_515_008
    block = real_file.raw("blk.7.attn_k.weight")[5, 40:60].tobytes()  # third block of a row: 20 bytes for 32 values
    scale, least = np.frombuffer(block[:4], "<f2").astype(np.float32)
    nibbles = [byte & 15 for byte in block[4:]] + [byte >> 4 for byte in block[4:]]
    np.testing.assert_array_equal(weights.layers[7].k_KD[5, 64:96], np.float32(nibbles) * scale + least)
