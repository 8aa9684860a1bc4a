"""Folders and files of every family, from opening to text."""

import pytest

from headway.core import SamplingParams
from headway.engine import LLM, EngineConfig
from headway.engine.build import build_engine
from headway.errors import BadModelFile, BadSetting, PromptTooLong
from tests.support.families import FAMILIES, family_weights, write_family_gguf, write_folder

GREEDY = SamplingParams(temperature=0.0, max_tokens=8, ignore_eos=True)


def config(path, **settings):
    return EngineConfig(model=str(path), executor="reference", num_blocks=64, **settings)


@pytest.mark.parametrize("name", FAMILIES)
def test_a_folder_and_a_file_write_the_same_text(tmp_path, name):
    """Every family generates, from both kinds of files alike."""
    weights = family_weights(name)
    write_folder(tmp_path / "folder", weights)
    write_family_gguf(tmp_path / "model.gguf", weights)
    texts = []
    for path in (tmp_path / "folder", tmp_path / "model.gguf"):
        llm = LLM(engine=build_engine(config(path)))
        texts.append(llm.generate("The one", GREEDY)[0].choices[0].token_ids)
    assert texts[0] == texts[1]
    assert len(texts[0]) == 8


def test_nothing_beyond_mistrals_window_is_accepted(tmp_path):
    """Neither a context nor a request: past the window other tokens would be seen than the model was trained to see."""
    write_folder(tmp_path, family_weights("mistral"), changes={"sliding_window": 64})
    with pytest.raises(BadSetting, match="max_model_len is 65, but the model's context is 64 tokens"):
        build_engine(config(tmp_path, max_model_len=65))
    llm = LLM(engine=build_engine(config(tmp_path)))
    with pytest.raises(PromptTooLong, match="holds 64 tokens"):
        llm.generate([[5] * 60], SamplingParams(max_tokens=8))


def test_what_cannot_be_run_is_named_before_memory_is_taken(tmp_path, monkeypatch):
    """Neither weights nor a pool are made for a model that is refused."""
    write_folder(tmp_path, family_weights("llama2"), changes={"rope_scaling": {"type": "yarn", "factor": 4.0}})
    monkeypatch.setattr("headway.executor.loaders.ReferenceLoader.load", lambda *_: pytest.fail("weights were loaded"))
    with pytest.raises(BadModelFile, match="RoPE scaling 'yarn' is not supported"):
        build_engine(config(tmp_path))
