"""A tiny model with random weights, for reports about values; a server's last moment that ends when a test says so."""

import asyncio
from types import SimpleNamespace

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


@pytest.fixture
def drain(monkeypatch):
    """A server that leaves serves on for `delay_s`, which are over when the test says so: no clock runs against it."""
    delay, sleep = SimpleNamespace(delay_s=600.0, is_over=asyncio.Event()), asyncio.sleep

    async def sleep_or_wait(seconds):
        await (delay.is_over.wait() if seconds == delay.delay_s else sleep(seconds))

    monkeypatch.setattr(asyncio, "sleep", sleep_or_wait)
    return delay
