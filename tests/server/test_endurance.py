"""The soak and the chaos script, in their short forms, on a model that is quick."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.tiny_model import write_tiny_gguf

ROOT = Path(__file__).parent.parent.parent


@pytest.mark.server
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("script", "words"),
    [("soak.py", ["--streams", "30", "--duration", "8", "--longest", "100"]), ("chaos.py", [])],
)
def test_everything_is_as_before(tmp_path, script, words):
    """Every check of the script holds; it says which does not."""
    model = tmp_path / "tiny.gguf"
    write_tiny_gguf(model)
    command = [sys.executable, str(ROOT / "benchmarks" / script), "--model", str(model), "--executor", "reference"]
    done = subprocess.run([*command, *words], capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "ok  " in done.stdout
