"""The examples run as they stand, and are short."""

import importlib.util
from pathlib import Path

import pytest

from tests.support.tiny_model import write_tiny_gguf

EXAMPLES = Path(__file__).parent.parent / "examples"


def load(name):
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def tiny_gguf(tmp_path_factory):
    path = tmp_path_factory.mktemp("tiny") / "tiny.gguf"
    write_tiny_gguf(path)
    return str(path)


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.stem)
def test_short(path):
    """An example fits a screen."""
    assert len(path.read_text(encoding="utf-8").splitlines()) < 40


def test_offline(tiny_gguf, capsys):
    """Two completions and one chat."""
    load("offline").main(tiny_gguf)
    assert len(capsys.readouterr().out.split("->")) == 3


async def test_stream(tiny_gguf, capsys):
    """Two streams, each ended once."""
    await load("stream").main(tiny_gguf)
    assert capsys.readouterr().out.count("->") == 2


@pytest.mark.server
def test_openai_client(tiny_gguf, capsys):
    """OpenAI's client, unchanged, against a server on a real socket."""
    import asyncio
    import threading

    import uvicorn

    from headway import AsyncLLM
    from headway.server import ServerConfig, create_app
    from headway.server.serve import bind

    config = ServerConfig(port=0)
    llm = AsyncLLM(tiny_gguf)
    web = uvicorn.Server(uvicorn.Config(create_app(llm, config), log_config=None))
    listener = bind(config)

    async def run():
        async with llm:
            await web.serve([listener])

    thread = threading.Thread(target=asyncio.run, args=(run(),))
    thread.start()
    try:
        load("openai_client").main(f"http://127.0.0.1:{listener.getsockname()[1]}/v1")
    finally:
        web.should_exit = True
        thread.join(20)
        listener.close()
    assert "tokens)" in capsys.readouterr().out
