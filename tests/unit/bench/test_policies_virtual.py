"""The comparison in virtual time, as a program: mistakes and Ctrl-C are told in a line."""

import pytest

from benchmarks import policies_virtual

QUICK = ["--seeds", "0", "--rates", "1.2", "--num-requests", "3", "--policies", "vllm"]


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--policies", "vllm,vlm"], "unknown policy 'vlm' (did you mean 'vllm'?)"),
        (["--num-blocks", "1"], "with --num-blocks 1 nobody is answered"),
        (["--set", "vllm.max_num_seqs=0"], "max_num_seqs is 0; it must be at least 1"),
        (["--set", "sarathi.token_budget=64"], "--set sarathi.token_budget: it is not run; name one of vllm"),
    ],
)
def test_what_cannot_be_run_is_told(args, said, capsys):
    """Status 2, one line on stderr."""
    assert policies_virtual.main([*QUICK, *args]) == 2
    err = capsys.readouterr().err
    assert said in err
    assert err.count("\n") == 1


@pytest.mark.parametrize("given", ["vllm.max_num_seqs=0", "sarathi.token_budget=64"])
def test_a_wrong_setting_is_told_before_anything_runs(given, monkeypatch):
    """A run of all policies takes minutes, and the last one's setting may be the wrong one."""
    monkeypatch.setattr(policies_virtual, "simulate", lambda *args: pytest.fail("it ran"))
    assert policies_virtual.main([*QUICK, "--set", given]) == 2


def test_a_file_that_cannot_be_written_is_told(capsys, tmp_path, monkeypatch):
    """As where the disk is full: in a line, behind the tables."""

    def full(*args, **kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(policies_virtual.Path, "write_text", full)
    assert policies_virtual.main([*QUICK, "--json", str(tmp_path / "out.json")]) == 2
    assert "out.json: No space left on device" in capsys.readouterr().err


@pytest.mark.parametrize(
    "args",
    [
        ["--rates", "x"],
        ["--rates", "1,nan"],
        ["--rates", "0"],
        ["--seeds", "0,a"],
        ["--set", "vllm"],
        ["--scatter", "2"],
        ["--json", "no/such/folder/out.json"],
        ["--json", "."],
    ],
)
def test_what_cannot_be_read_is_told(args, capsys):
    """With the flag and the text."""
    with pytest.raises(SystemExit, match="2"):
        policies_virtual.main(args)
    assert f"argument {args[0]}: invalid" in capsys.readouterr().err


def test_an_interruption_is_told(monkeypatch, capsys):
    """Status 130, as with the commands."""

    def stopped(*args):
        raise KeyboardInterrupt

    monkeypatch.setattr(policies_virtual, "simulate", stopped)
    assert policies_virtual.main(QUICK) == 130
    assert capsys.readouterr().err == "policies_virtual: interrupted\n"


def test_it_runs(capsys):
    """A table for each rate."""
    assert policies_virtual.main(QUICK) == 0
    assert "1.2 x what vllm sustains, median of 1 seeds" in capsys.readouterr().out


def test_steps_scatter_alike_in_every_run(tmp_path):
    """The same chance for each policy and each time; without scatter as on any plant."""
    files = [tmp_path / name for name in ("still.json", "restless.json", "again.json")]
    for file, scatter in zip(files, ("0", "0.2", "0.2"), strict=True):
        assert policies_virtual.main([*QUICK, "--scatter", scatter, "--json", str(file)]) == 0
    still, restless, again = (file.read_text() for file in files)
    assert restless == again
    assert restless != still
