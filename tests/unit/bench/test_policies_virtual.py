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
    ],
)
def test_what_cannot_be_run_is_told(args, said, capsys):
    """Status 2, one line on stderr."""
    assert policies_virtual.main([*QUICK, *args]) == 2
    err = capsys.readouterr().err
    assert said in err
    assert err.count("\n") == 1


@pytest.mark.parametrize("args", [["--rates", "x"], ["--seeds", "0,a"], ["--set", "vllm"], ["--scatter", "2"]])
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
