import numpy as np
import pytest

from headway.errors import BadModelFile
from headway.models import GgufFile, load_weights, open_model, random_weights
from headway.models.gguf_parts import whole_name
from tests.support.tiny_model import named_tensors, tiny_config, write_gguf

PER_PART = 8
WEIGHTS = random_weights(tiny_config(), seed=6)


@pytest.fixture
def parts(tmp_path):
    """The tiny model in three files, split by the `gguf` library."""
    write_gguf(tmp_path / "tiny.gguf", WEIGHTS.config, named_tensors(WEIGHTS), split_max_tensors=PER_PART)
    paths = sorted(tmp_path.iterdir())
    assert [path.name for path in paths] == [f"tiny-0000{i}-of-00003.gguf" for i in (1, 2, 3)]
    return paths


def refusal(path):
    with pytest.raises(BadModelFile) as caught:
        GgufFile.open(path)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_any_part_opens_the_whole_model(parts):
    """Whichever part is named, all tensors are there, bit for bit, and the name is the whole's."""
    for path in parts:
        loaded = named_tensors(load_weights(GgufFile.open(path)))
        for name, array in named_tensors(WEIGHTS).items():
            np.testing.assert_array_equal(loaded[name], array)
        assert open_model(str(path)).name == "tiny"


def test_a_part_that_is_missing_is_named(parts):
    """A download that is not over."""
    parts[1].unlink()
    assert "tiny-00002-of-00003.gguf" in refusal(parts[0])


def test_parts_in_another_order_are_refused(parts):
    """Names and what the files say of themselves must agree."""
    spare = parts[0].with_name("spare")
    parts[1].rename(spare)
    parts[2].rename(parts[1])
    spare.rename(parts[2])
    assert "split.no" in refusal(parts[0])


def test_a_renamed_part_cannot_find_the_others(parts):
    """The message says how the name must end."""
    renamed = parts[0].rename(parts[0].with_name("model.gguf"))
    assert "-NNNNN-of-00003.gguf" in refusal(renamed)


def test_a_part_of_another_model_is_refused(parts, tmp_path):
    """Tensors that come twice would be taken from either."""
    wrong = {name: array for name, array in named_tensors(WEIGHTS).items() if "blk.0" in name or "token" in name}
    (tmp_path / "other").mkdir()
    write_gguf(tmp_path / "other" / "tiny.gguf", WEIGHTS.config, wrong, split_max_tensors=4)
    (tmp_path / "other" / "tiny-00002-of-00003.gguf").rename(parts[1])
    assert "is in another part too" in refusal(parts[0])


def test_names_of_wholes(tmp_path):
    """A part's number is no part of a model's name."""
    assert whole_name(tmp_path / "a-b-00002-of-00010.gguf") == "a-b"
    assert whole_name(tmp_path / "a-1-of-2.gguf") == "a-1-of-2"
