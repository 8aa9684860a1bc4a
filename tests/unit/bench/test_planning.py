"""The scheduler's own time, as a program: mistakes and Ctrl-C are told in a line."""

import pytest

from benchmarks import planning

QUICK = ["vllm", "--running", "2", "--steps", "2"]


@pytest.mark.parametrize("args", [["--running", "0"], ["--steps", "x"], ["--running", "99999999999"]])
def test_what_cannot_be_counted_is_told(args, capsys):
    """With the flag, the text and the limits."""
    with pytest.raises(SystemExit, match="2"):
        planning.main(args)
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.endswith(f"argument {args[0]}: {args[1]!r} is not a whole number from 1 to {planning.MOST}")


def test_an_unknown_policy_is_told_in_its_row(capsys):
    """Beside the figures of the others; the status is 2 where there are none."""
    assert planning.main(["vlm", *QUICK]) == 0
    assert "unknown policy 'vlm' (did you mean 'vllm'?)" in capsys.readouterr().out
    assert planning.main(["vlm"]) == 2


def test_an_interruption_is_told(monkeypatch, capsys):
    """Status 130, as with the commands."""

    def stopped(*args):
        raise KeyboardInterrupt

    monkeypatch.setattr(planning, "measure", stopped)
    assert planning.main(QUICK) == 130
    assert capsys.readouterr().err == "planning: interrupted\n"
