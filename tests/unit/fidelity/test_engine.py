"""The engine against itself in virtual time: the machinery, on an executor whose step times are known exactly."""

import json
from dataclasses import replace

import pytest

from headway.bench.mixed import MixedLoad
from headway.cli.main import main
from headway.errors import BadSetting
from headway.fidelity import EngineTrial, check_engine
from headway.sim import Calibration, Fitted, write_calibration
from tests.support.tiny_model import write_tiny_gguf

FAST = MixedLoad(num_requests=8, prompt_median=12, prompt_p90=30, output_median=4, output_p90=9, context=128)


@pytest.fixture(scope="module")
def engine(tmp_path_factory):
    from headway.engine import EngineConfig, build_engine

    path = tmp_path_factory.mktemp("tiny") / "tiny.gguf"
    write_tiny_gguf(path)
    built = build_engine(EngineConfig(model=str(path), executor="reference", seed=0, num_blocks=256))
    yield built
    built.core.executor.close()


def calibration(step_s):
    return Calibration(
        model=Fitted(rows=((1, step_s),)),
        num_steps=1,
        median_error=0.0,
        p95_error=0.0,
        engine={"num_blocks": 256, "block_size": 16, "max_model_len": 128},
    )


@pytest.mark.parametrize(
    "policies", [("vllm", "headway"), pytest.param(("sarathi_serve", "orca"), marks=pytest.mark.slow)], ids=" ".join
)
def test_every_live_decision_is_made_again(engine, policies):
    """With the recorded step times each plan of a live run comes out the same, whatever the policy."""
    trial = EngineTrial(requests=FAST, policies=policies, repeats=1)
    check = check_engine(engine, calibration(2e-3), trial, on_progress=lambda *_: None)
    assert [one.num_differences for one in check.checks] == [0, 0]
    assert all(one.num_steps > 5 for one in check.checks)
    for one in check.checks:
        assert [(row.metric, row.figure) for row in one.rows] == [
            ("TTFT", "P50"),
            ("TTFT", "P95"),
            ("ITL", "P50"),
            ("ITL", "P95"),
            ("throughput", "tokens/s"),
        ]


def test_step_times_that_are_wrong_are_found(engine):
    """A simulation whose host takes a tenth of a second between steps is beyond every bound on latency."""
    trial = EngineTrial(requests=FAST, policies=("vllm",), repeats=1, load=0.85)
    wrong = replace(calibration(2e-3), model=Fitted(rows=((1, 2e-3),), host_s=0.1))
    check = check_engine(engine, wrong, trial, on_progress=lambda *_: None)
    assert not check.is_within
    assert all(row.error > 1.0 for row in check.checks[0].rows if row.metric == "ITL")


def test_a_load_at_which_queues_are_chance_is_refused():
    """Near saturation no simulator is right."""
    with pytest.raises(BadSetting, match=r"between 0.05 and 0.85"):
        EngineTrial(requests=FAST, load=0.95)


def test_the_command_prints_its_table_or_json(tmp_path, capsys):
    """Status 0 within the bounds asked for, 1 beyond them."""
    path = tmp_path / "tiny.gguf"
    write_tiny_gguf(path)
    sizes = ("--prompt-median", "12", "--prompt-p90", "30", "--output-median", "4", "--output-p90", "9")
    flags = ("--executor", "reference", "--num-blocks", "256", "--max-model-len", "128", "--policies", "vllm")
    kept = tmp_path / "calibration.json"
    about = {"model": "tiny", "kernels": "numpy", "weights": "float32", "threads": None}
    write_calibration(replace(calibration(2e-3), about=about), kept)
    run = ["fidelity", "engine", "--model", str(path), *sizes, *flags, "--calibration", str(kept)]
    run += ["--num-requests", "6", "--repeats", "1"]
    assert main([*run, "--latency-bound", "1e9", "--throughput-bound", "1e9", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["policies"][0]["replay"]["num_differences"] == 0
    assert main([*run, "--latency-bound", "0", "--throughput-bound", "0"]) == 1
    assert "beyond a bound" in capsys.readouterr().out


def test_a_calibration_of_another_engine_is_refused(tmp_path, capsys):
    """What is off is named with both values."""
    path, kept = tmp_path / "tiny.gguf", tmp_path / "calibration.json"
    write_tiny_gguf(path)
    write_calibration(calibration(2e-3), kept)
    flags = ("--executor", "reference", "--num-blocks", "64", "--max-model-len", "128")
    assert main(["fidelity", "engine", "--model", str(path), "--calibration", str(kept), *flags]) == 2
    assert "the calibration is of model None, this engine has tiny" in capsys.readouterr().err
