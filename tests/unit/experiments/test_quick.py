"""`headway reproduce`: every experiment runs in its quick form, and says what it should."""

import json
import math

import pytest

from headway.cli.main import main
from headway.errors import BadSetting
from headway.experiments import EXPERIMENTS, QUICK, Effort, experiment, papers_document


def checked(name, seed=1):
    """The finding of a quick run, whole."""
    parts = []
    finding = experiment(name)(Effort(share=QUICK, seed=seed, tell=parts.append))
    assert finding.name == name
    assert parts, "it says how far it is"
    assert finding.ratios
    assert finding.chart.series
    assert all(not math.isnan(ratio.ours) for ratio in finding.ratios)
    assert f"## {name}" in papers_document([finding])
    return finding


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(set(EXPERIMENTS) - {"orca"}))
def test_every_quick_run_is_whole(name):
    """Ratios, tables, a figure, a text for the document; of `orca` the next test sees them in every run."""
    checked(name)


def test_a_seed_repeats_a_run_and_another_one_draws_others():
    """Lengths and arrivals come from it alone."""
    first, again, other = (checked("orca", seed).tables[0].rows for seed in (7, 7, 8))
    assert first == again
    assert first != other


@pytest.mark.parametrize(("share", "seed"), [(0.0, 1), (1.5, 1), (0.5, -1)])
def test_an_effort_says_what_it_may_be(share, seed):
    """A share above 0 and at most 1, a seed of at least 0."""
    with pytest.raises(BadSetting, match=r"share is|seed is"):
        Effort(share=share, seed=seed)


def test_the_command_writes_a_figure_and_one_document(tmp_path, capsys, monkeypatch):
    """`--quick --json`: progress on stderr, JSON alone on stdout, the figure not among those of the documents."""
    monkeypatch.chdir(tmp_path)
    assert main(["reproduce", "orca", "--quick", "--json", "--seed", "3"]) == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out)["name"] == "orca"
    assert "orca (1 of 1)" in captured.err
    assert [path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*.*")] == ["build/quick/figures/orca.svg"]


def test_ctrl_c_keeps_the_findings_before_it(tmp_path, capsys, monkeypatch):
    """Of `all`, what had been found is printed; no document is written that lacks the rest."""
    real = experiment("orca")

    def pretended(name):
        def run(effort):
            if name != next(iter(EXPERIMENTS)):
                raise KeyboardInterrupt
            return real(effort)

        return run

    monkeypatch.setattr("headway.experiments.experiment", pretended)
    paper = tmp_path / "papers.md"
    words = ["--quick", "--json", "--figures", str(tmp_path / "figures"), "--document", str(paper)]
    assert main(["reproduce", "all", *words]) == 130
    assert [finding["name"] for finding in json.loads(capsys.readouterr().out)] == ["orca"]
    assert not paper.exists()


def test_a_folder_that_cannot_be_is_told_before_anything_runs(tmp_path, capsys):
    """One line, status 2."""
    (tmp_path / "file").touch()
    assert main(["reproduce", "all", "--quick", "--figures", str(tmp_path / "file" / "figures")]) == 2
    assert "cannot write into" in capsys.readouterr().err
