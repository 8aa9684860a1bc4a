"""`headway tune` writes a config file that `headway serve` starts with, its evidence and a report."""

import json
import signal
import tomllib
from pathlib import Path

import httpx
import pytest

from headway.sim import Calibration, Fitted, write_calibration

EXAMPLES = Path(__file__).parents[3] / "examples" / "tuning"


@pytest.fixture(scope="module")
def calibration(tmp_path_factory):
    path = tmp_path_factory.mktemp("calibration") / "here.json"
    fitted = Fitted(rows=((1, 7e-3), (8, 11e-3), (64, 55e-3)), drawn_s=4e-4, context_s=1e-6, attend_s=1e-6)
    sizes = {"num_blocks": 512, "block_size": 16, "max_model_len": 2048}
    write_calibration(Calibration(model=fitted, num_steps=9, median_error=0.0, p95_error=0.0, engine=sizes), path)
    return path


def tune(headway, folder, calibration, workload, *flags):
    return headway(
        "tune",
        workload,
        "--slo",
        EXAMPLES / "slo.toml",
        *("--simulate-only", "--calibration", calibration, "--max-requests", "10", "--quick"),
        *("-o", folder / "out.toml"),
        *flags,
    )


@pytest.mark.server
def test_serve_starts_with_what_the_examples_give(headway, tmp_path, calibration, tiny_gguf, nursery):
    """The example workload and table; guardrails are set in the server that comes of it."""
    status, out, err = tune(headway, tmp_path, calibration, EXAMPLES / "assistant.toml", "--policy", "vllm")
    assert status == 0
    assert "first to break" in out
    assert "out.html" in err
    config = tomllib.loads((tmp_path / "out.toml").read_text())
    assert "itl_p95_ms=120" in config["slo"]
    assert json.loads((tmp_path / "out.json").read_text())["kept"] is True
    assert "<svg" in (tmp_path / "out.html").read_text()
    words = [str(tiny_gguf), "--config", str(tmp_path / "out.toml"), "--port", "0", "--num-blocks", "64"]
    process = nursery.start("headway.cli.main:main", "serve", *words)
    try:
        summary = []
        while not summary or not summary[-1].startswith("serving:"):
            line = process.stderr.readline()
            assert line, f"the server ended early: {summary}"
            summary.append(line)
        url = summary[-1].split()[1]
        assert httpx.get(f"{url}/ready").status_code == 200
        status = httpx.get(f"{url}/admin/config").text
        assert "queue_wait_p95_ms" in status
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=30)
        assert process.returncode == 0
    finally:
        process.kill()
        process.communicate()


def test_a_recording_is_tuned_for(headway, tmp_path, calibration):
    """What `serve --record` wrote, one line a request, with --json on stdout alone."""
    lines = [
        {"at_s": 0.4 * at, "num_prompt": 40 + at, "num_output": 8, "max_output": 16, "prefix": [], "prefix_block": 64}
        for at in range(10)
    ]
    lines.append(lines[0] | {"num_output": 0, "outcome": "refused: queue_full"})
    workload = tmp_path / "recorded.jsonl"
    workload.write_text("".join(json.dumps(line) + "\n" for line in lines))
    status, out, err = tune(headway, tmp_path, calibration, workload, "--policy", "vllm", "--json")
    assert status == 0
    assert f"{workload}: rows without a prompt or an output are left out: 1" in err
    document = json.loads(out)
    assert document["chosen"]["kept"] is True
    assert document["verified"] is None
    assert {stage["name"] for stage in document["stages"]} >= {"baseline", "real traffic", "guardrails"}


def test_promises_that_no_setting_keeps_end_with_status_1(headway, tmp_path, calibration):
    """The least bad setting is written all the same, and said to be that."""
    table = tmp_path / "slo.txt"
    table.write_text("ttft_p50_ms 0.001\n")
    status, out, _ = headway(
        "tune",
        *("--slo", table, "--num-requests", "10", "--rate", "1", "--prompt-len", "9", "--output-len", "2"),
        *("--simulate-only", "--calibration", calibration, "--max-requests", "10", "--quick"),
        *("-o", tmp_path / "out.toml", "--policy", "vllm"),
    )
    assert status == 1
    assert "No setting keeps all promises" in out
    assert f"# Written by headway tune for the engine of {calibration}.\n" in (tmp_path / "out.toml").read_text()


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--slo", "nowhere.toml"), "cannot read nowhere.toml"),
        (("-o", "/nowhere/out.toml"), "cannot write /nowhere/out.toml"),
        (("--html", "out.toml", "-o", "out.toml"), "the same file"),
        (("--policy", "orca"), "nothing to tune"),
        (("--calibration", "nowhere.json"), "cannot read nowhere.json"),
    ],
)
def test_mistakes_are_one_line(headway, tmp_path, calibration, monkeypatch, flags, message):
    """Before anything is measured."""
    monkeypatch.chdir(tmp_path)
    status, _, err = tune(headway, tmp_path, calibration, EXAMPLES / "assistant.toml", *flags)
    assert status == 2
    assert message in err
    assert len(err.splitlines()) == 1
