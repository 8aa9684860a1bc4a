"""Every family and RoPE scaling against logits that another implementation computed (tests/golden/README.md)."""

from pathlib import Path

import numpy as np
import pytest

from headway.core import Batch, Lane
from headway.executor.reference import ReferenceExecutor
from headway.models import GgufFile, HfFolder, known_architectures, load_weights
from tests.support.families import FAMILIES, family_weights, write_family_gguf, write_folder

GOLDEN = np.load(Path(__file__).parents[2] / "golden" / "logits_families.npz")
BLOCKS = list(range(8))


def relative_errors(name, executor):
    """Error of each golden prompt's logits, as a part of the largest."""
    for number in range(2):
        ids, rows, expected = (GOLDEN[f"{part}_{number}"] for part in ("ids", "rows", name))
        logits = executor.logits(Batch(0, [Lane("a", ids.tolist(), 0, BLOCKS)]))
        yield np.abs(logits[rows] - expected).max() / np.abs(expected).max()


@pytest.mark.parametrize("name", FAMILIES)
def test_a_folder_gives_the_other_implementations_logits(tmp_path, name):
    """What it read from a folder, we read from the same folder: config, RoPE, biases, norms of heads, ties."""
    write_folder(tmp_path, family_weights(name))
    file = HfFolder.open(tmp_path)
    executor = ReferenceExecutor(load_weights(file), file.config, num_blocks=len(BLOCKS), block_size=16)
    assert max(relative_errors(name, executor)) < 1e-5


@pytest.mark.parametrize("name", FAMILIES)
def test_a_gguf_file_gives_the_other_implementations_logits(tmp_path, name):
    """The same through GGUF, whose makers reorder rows of some families and work Llama 3's scaling out beforehand."""
    write_family_gguf(tmp_path / "model.gguf", family_weights(name))
    file = GgufFile.open(tmp_path / "model.gguf")
    executor = ReferenceExecutor(load_weights(file), file.config, num_blocks=len(BLOCKS), block_size=16)
    assert max(relative_errors(name, executor)) < 1e-5


def test_every_architecture_has_golden_values():
    """A family that is added brings a tiny model and logits of another implementation with it."""
    assert {config.architecture for config in FAMILIES.values()} == set(known_architectures())
    assert {f"{name}_{number}" for name in FAMILIES for number in range(2)} <= set(GOLDEN)
