"""A number with more digits than Python reads is a mistake in a file like any other: one line, no traceback."""

import pytest

from headway.cli.config_file import _read
from headway.cli.tasks import _task
from headway.core import SamplingParams
from headway.errors import BadSetting
from headway.report import load_run
from headway.sim.fitted import read_calibration
from headway.sim.modelcard import card_from_config
from headway.tenancy.roster import Roster
from headway.workload.loading import parse_text

DIGITS = "9" * 5000


@pytest.mark.parametrize("read", [load_run, read_calibration, card_from_config])
def test_json_files(tmp_path, read):
    """Results, step times and model cards."""
    path = tmp_path / "file.json"
    path.write_text(f'{{"a": {DIGITS}}}')
    with pytest.raises(BadSetting, match="digits"):
        read(path)


def test_toml_files(tmp_path):
    """Flags and tenants."""
    path = tmp_path / "file.toml"
    path.write_text(f"port = {DIGITS}")
    with pytest.raises(BadSetting, match="digits"):
        _read(path)
    with pytest.raises(BadSetting, match="digits"):
        Roster.parse(path.read_text())


@pytest.mark.parametrize(
    ("kind", "text"), [("toml", f"a = {DIGITS}"), ("json", f"[{DIGITS}]"), ("yaml", f"a: {DIGITS}")]
)
def test_workloads(kind, text):
    """In each of their notations."""
    with pytest.raises(BadSetting, match="digits"):
        parse_text(text, kind, "w")


def test_prompts():
    """A line of `headway generate`'s input."""
    with pytest.raises(BadSetting, match="line 1"):
        _task(f'{{"prompt": {DIGITS}}}', "line 1", "0", SamplingParams())
