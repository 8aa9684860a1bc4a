"""`headway bench isolation` and `overload`, whole, on a model that is quick."""

import json

import pytest

from headway.cli.main import main
from tests.support.tiny_model import write_tiny_gguf


@pytest.fixture
def model(tmp_path):
    path = tmp_path / "tiny.gguf"
    write_tiny_gguf(path)
    return str(path)


@pytest.mark.server
@pytest.mark.timeout(240)
def test_isolation_prints_its_figures(model, capsys):
    """Solo, both policies, and the ratios."""
    words = ["--model", model, "--executor", "reference", "--duration", "2", "--rate", "4", "--big-prompt", "60"]
    words += ["--factor", "1"]
    assert main(["bench", "isolation", "--json", *words]) == 0
    found = json.loads(capsys.readouterr().out)
    assert {"solo", "headway", "vllm", "ratio_headway", "ratio_vllm"} <= found.keys()
    assert found["ratio_vllm"] == pytest.approx(found["vllm"] / found["solo"])
    assert found["runs"]["solo"]["num_requests"] > 0


@pytest.mark.server
@pytest.mark.timeout(240)
def test_overload_prints_its_figures(model, capsys):
    """Capacity, goodput at it and beyond, and how true Retry-After was."""
    words = ["--model", model, "--executor", "reference", "--duration", "2", "--prompt-len", "40", "--output-len", "8"]
    assert main(["bench", "overload", "--json", *words]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["capacity"] > 0
    assert found["goodput_at_capacity"] > 0
    assert found["num_refused"] >= 0


def test_mistakes_are_told_before_anything_is_loaded(capsys):
    """One line, status 2."""
    assert main(["bench", "isolation", "--rate", "0"]) == 2
    assert "rate is 0" in capsys.readouterr().err


def test_a_small_tenant_hardly_feels_a_big_one(capsys):
    """In virtual time, beyond twice the capacity: at most twice as long as alone under `headway`, and far more else."""
    words = ["--hardware", "CPU", "--set", "efficiency=0.8", "--duration", "40", "--json"]
    assert main(["bench", "isolation", *words]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["is_virtual"]
    assert found["offered_over_served"] >= 1.5
    assert found["ratio_headway"] <= 2.0
    assert found["ratio_vllm"] > 20.0
