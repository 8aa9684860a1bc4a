"""The examples run as they stand, and are short."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given

from headway.cli.main import main
from headway.sim import run_scene
from tests.support.scenes import scenes
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


SCENE = EXAMPLES.parent / "tests" / "tapes" / "scenes" / "short_behind_long.json"
TAPE_COMMAND = ["tape", str(SCENE), "--policy", "my_policy:ShortestPrompt", "--set", "max_num_seqs=1"]
TAPE = (
    "step   0   1   2   3   4   5   6   7   8\n"
    "A      .   .   .   .   .   .   .  20   1\n"
    "B      .   .   .   .   .  18   1   .   .\n"
    "C      3   1   1   .   .   .   .   .   .\n"
    "D      .   .   .   4   1   .   .   .   .\n"
    "free  39  39  38  39  38  35  35  35  34\n"
)


def test_my_policy(monkeypatch, capsys):
    """A policy of one's own package does what it says: short prompts first, none cut."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    assert main(TAPE_COMMAND) == 0
    assert capsys.readouterr().out == TAPE


@pytest.mark.slow  # a process that imports everything anew
def test_my_policy_is_found_by_pythonpath():
    """The same in a process of its own, as a user runs it."""
    path = os.pathsep.join(filter(None, [str(EXAMPLES), os.environ.get("PYTHONPATH")]))
    done = subprocess.run(
        [sys.executable, "-m", "headway", *TAPE_COMMAND],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert done.stdout == TAPE


@given(scene=scenes(with_prefixes=True, with_choices=True))
def test_my_policy_keeps_the_laws(scene):
    """Every request ends once, whatever the scene."""
    sys.path.insert(0, str(EXAMPLES))
    try:
        records = run_scene(scene, "my_policy:ShortestPrompt")
    finally:
        sys.path.remove(str(EXAMPLES))
    ended = [name for record in records for name in record.finished]
    choices = [
        name
        for request in scene.requests
        for name in (request.id, *(f"{request.id}/{choice}" for choice in range(1, request.n)))
    ]
    assert sorted(ended) == sorted(choices)


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
