"""What `headway serve --record` and `--record-steps` do with their files and threads."""

import threading

import pytest

from headway.cli.recording import Recording
from headway.engine import AsyncLLM
from headway.errors import BadSetting
from headway.obs.decision_log import DecisionLog
from headway.obs.rotating import RotatingFile
from tests.support.engines import simulated_engine


def writers():
    return {thread for thread in threading.enumerate() if thread.name == "headway-record"}


def test_a_second_file_that_cannot_be_opened_closes_the_first(tmp_path):
    """No thread of the request recorder stays behind."""
    before = writers()
    with pytest.raises(BadSetting, match="cannot record"), Recording(tmp_path / "a", tmp_path / "no" / "b", 1):
        pass
    assert writers() <= before


def test_decisions_without_an_engine_leave_a_closed_file(tmp_path):
    """A model that could not be loaded: there is no log that would close it."""
    recording = Recording(None, tmp_path / "steps", 1)
    with recording:
        pass
    with pytest.raises(ValueError, match="closed"):
        recording._decisions.write(b"x")


def test_a_log_that_is_still_being_written_is_not_closed_under_its_writer(tmp_path, monkeypatch):
    """A disk that is slower than the end waits for it: what was handed over is written all the same."""
    path, go, write = tmp_path / "steps", threading.Event(), RotatingFile.write
    monkeypatch.setattr(RotatingFile, "write", lambda file, line: go.wait(10.0) and write(file, line))
    monkeypatch.setattr(DecisionLog, "close", lambda log: log._writer.close(timeout_s=0.01))
    before = writers()
    recording = Recording(None, path, 1)
    with recording:
        recording.follow(AsyncLLM(engine=simulated_engine()))
    [writer] = writers() - before
    go.set()
    writer.join(10.0)
    assert path.read_bytes().startswith(b'{"n":0,"kind":"engine"')
