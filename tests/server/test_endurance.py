"""The soak and the chaos script: whole in processes of their own, and in short in this one."""

import argparse
import asyncio
import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from headway.cli.own_server import OwnServer
from headway.engine import AsyncLLM
from headway.server import ServerConfig
from tests.support.engines import Paced, simulated_engine
from tests.support.live_server import LiveServer, live
from tests.support.tiny_model import write_tiny_gguf

BENCHMARKS = Path(__file__).parent.parent.parent / "benchmarks"

pytestmark = pytest.mark.server
REAL = (pytest.mark.model, pytest.mark.native)


@pytest.fixture
def script(monkeypatch):
    """A script of `benchmarks` as a module."""

    def load(name):
        spec = importlib.util.spec_from_file_location(name, BENCHMARKS / f"{name}.py")
        module = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, name, module)
        spec.loader.exec_module(module)
        return module

    return load


@pytest.mark.slow  # half a minute each: processes that start, hang, are killed and start again
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("name", "words"),
    [
        # What the live page may take is a share of what a real model takes; the small cache is full at once.
        pytest.param(
            "soak.py",
            ["--streams", "30", "--duration", "12", "--longest", "100", "--kv-cache-memory", "32MiB"],
            marks=REAL,
        ),
        ("chaos.py", ["--executor", "reference"]),
    ],
)
def test_everything_is_as_before(tmp_path, name, words):
    """Every check of the script holds; it says which does not."""
    if "reference" in words:
        model = tmp_path / "tiny.gguf"
        write_tiny_gguf(model)
        words = ["--model", str(model), *words]
    command = [sys.executable, str(BENCHMARKS / name), *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "ok  " in done.stdout


async def test_a_short_soak_leaves_everything_as_before(script):
    """Every check of the soak holds after half a second with pauses of all, cancellations and slow readers."""
    words = {"streams": 12, "duration": 0.6, "longest": 16, "seed": 0, "burst_every": 0.3, "burst_pause": 0.1}
    with live(AsyncLLM(engine=simulated_engine(num_blocks=200))) as server:
        checks = await script("soak").soak(OwnServer(server.url, {}, os.getpid()), argparse.Namespace(**words))
    assert [what for what, holds in checks if not holds] == []


@pytest.mark.parametrize("scenario", ["a_step_breaks", "clients_vanish", "nonsense_arrives"])
async def test_the_server_outlives_what_needs_no_other_process(script, tmp_path, scenario):
    """Steps that break, clients that vanish, bytes that mean nothing."""
    chaos = script("chaos")
    chaos.NUM_VANISHING = 20

    def wrap(inner):
        return chaos.Faults(Paced(inner, 0.004), tmp_path / "orders")

    live_server = LiveServer(AsyncLLM(engine=simulated_engine(wrap=wrap, num_blocks=200)), ServerConfig())
    server = chaos.Server(argparse.Namespace(), tmp_path)
    await server.http.aclose()
    with live_server:
        server.port = live_server.port
        async with chaos.httpx.AsyncClient(base_url=live_server.url, timeout=60) as server.http:
            assert await asyncio.wait_for(getattr(chaos, scenario)(server), 60)
