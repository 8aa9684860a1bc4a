"""`headway calibrate` measures, writes, and its file is what simulations take."""

import json
import pathlib

import pytest

from headway.cli import calibrating, calibrations


@pytest.fixture(scope="module")
def calibrated(tiny_gguf, tmp_path_factory):
    from headway.cli.main import main

    path = tmp_path_factory.mktemp("calibration") / "here.json"
    flags = ("--seconds", "1", "--executor", "reference", "--num-blocks", "256", "--most-tokens", "64")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(calibrating, "measure", shortened(calibrating.measure))
        assert main(["calibrate", str(tiny_gguf), "-o", str(path), *flags]) == 0
    return path


def shortened(measure):
    """As it measures, for less than the least that a user may ask for."""
    return lambda engine, seconds, most_tokens: measure(engine, seconds / 4, most_tokens)


def test_a_file_is_written(calibrated):
    """It names the machine, the kernels and the model, and says how good the fit is."""
    document = json.loads(calibrated.read_text())
    assert document["format"] == "headway-step-times"
    assert document["about"]["executor"] == "reference"
    assert {"machine", "model", "kernels", "weights", "threads"} <= document["about"].keys()
    assert document["engine"]["num_blocks"] == 256
    assert document["fit"]["num_steps"] > 30
    assert 0 <= document["fit"]["median_relative_error"] <= document["fit"]["p95_relative_error"]


def test_simulate_takes_the_file(headway, calibrated):
    """It brings its model and its pool; flags of cards are refused."""
    workload = ("--num-requests", "5", "--prompt-len", "20", "--output-len", "4", "--rate", "10")
    status, out, _ = headway("simulate", "--hardware", calibrated, *workload, "--json")
    assert status == 0
    assert json.loads(out)["completed"] == 5
    status, _, err = headway("simulate", "--hardware", calibrated, *workload, "-tp", "2")
    assert (status, "is a calibrated engine" in err) == (2, True)


@pytest.mark.skipif(not pathlib.Path("/dev/full").exists(), reason="there is no device that is always full")
def test_a_file_that_cannot_be_written_costs_nothing_else(headway, calibrated, tmp_path):
    """The disk is full after the run: its figures are printed, the other files written, and the message says which."""
    csv, workload = tmp_path / "requests.csv", ("--num-requests", "5", "--rate", "10")
    files = ("--output", "/dev/full", "--csv", csv)
    status, out, err = headway("simulate", "--hardware", calibrated, *workload, *files, "--json")
    assert (status, err) == (2, "headway: cannot write /dev/full: No space left on device\n")
    assert json.loads(out)["completed"] == 5
    assert len(csv.read_text().splitlines()) == 6


def test_simulate_takes_this_machine(headway, calibrated, monkeypatch):
    """Once there is a calibration; before, the way to one is named."""
    workload = ("--num-requests", "2", "--prompt-len", "20", "--output-len", "4", "--json")
    monkeypatch.setattr(calibrations, "default_file", lambda: calibrated)
    assert headway("simulate", "--hardware", "this", *workload)[0] == 0
    monkeypatch.setattr(calibrations, "default_file", lambda: calibrated.with_name("none.json"))
    status, _, err = headway("simulate", "--hardware", "this", *workload)
    assert (status, "run `headway calibrate` first" in err) == (2, True)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("-o", "/nowhere/at/all.json"), "cannot write"),
        (("--seconds", "0"), "seconds"),
        (("--executor", "abacus"), "abacus"),
    ],
)
def test_mistakes_are_one_line(headway, tiny_gguf, flags, message):
    """Before anything is loaded or measured."""
    status, _, err = headway("calibrate", tiny_gguf, *flags)
    assert status == 2
    assert message in err
    assert len(err.splitlines()) == 1


def test_other_files_are_no_hardware(headway, tmp_path):
    """A .json that is not a calibration."""
    path = tmp_path / "other.json"
    path.write_text("{}")
    status, _, err = headway("simulate", "--hardware", path, "--num-requests", "1")
    assert (status, "write one with `headway calibrate`" in err) == (2, True)
