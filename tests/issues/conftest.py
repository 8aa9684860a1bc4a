"""A tiny model with random weights on the reference executor, for reports about values."""

import pytest

from headway.engine import LLM, EngineConfig, build_engine
from tests.support.tiny_model import write_tiny_gguf


@pytest.fixture(scope="session")
def tiny_path(tmp_path_factory):
    path = tmp_path_factory.mktemp("tiny") / "tiny.gguf"
    write_tiny_gguf(path)
    return path


@pytest.fixture
def tiny(tiny_path):
    """Makes an `LLM` over the tiny model; settings are `EngineConfig`'s."""
    made = []

    def make(**settings):
        chosen = {"executor": "reference", "policy": "vllm", "num_blocks": 200, "seed": 1, **settings}
        made.append(build_engine(EngineConfig(model=str(tiny_path), **chosen)))
        return LLM(engine=made[-1])

    yield make
    for engine in made:
        engine.core.executor.close()
