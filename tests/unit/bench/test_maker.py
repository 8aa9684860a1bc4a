"""Which code on which processor made a run."""

import headway
from headway.bench.contest import Standings
from headway.bench.maker import Maker, code_version, warning
from headway.bench.score import Score
from headway.cli.bench_standings import lines

NEW, OLD = Maker(code="1+a", processor="cpu"), Maker()


def test_a_changed_module_is_another_version(monkeypatch, tmp_path):
    """Whatever it does; other files, and where the package lies, are none of its business."""
    versions = []
    for name, files in {
        "one": {"a.py": "1", "b.so": "2"},
        "moved": {"a.py": "1", "b.so": "2", "a.pyc": "3"},
        "edited": {"a.py": "2", "b.so": "2"},
        "built": {"a.py": "1", "b.so": "3"},
    }.items():
        (tmp_path / name).mkdir()
        for file, content in files.items():
            (tmp_path / name / file).write_text(content)
        monkeypatch.setattr(headway, "__path__", [str(tmp_path / name)])
        versions.append(code_version())
    assert versions[0] == versions[1]
    assert len(set(versions)) == 3
    assert all(version.startswith(f"{headway.__version__}+") for version in versions)


def test_runs_of_different_makers_are_told_with_their_numbers():
    """Nothing where all are of one, or of none that is known."""
    assert warning([]) == warning([NEW, NEW]) == warning([OLD]) == ""
    assert "2 by 1+a on cpu, 1 by unknown code on an unknown processor" in warning([NEW, OLD, NEW])


def test_a_table_of_different_makers_says_so_first():
    """Of the runs that are compared, not of those that an interruption left over."""
    one = Score(**dict.fromkeys(Score.__dataclass_fields__, 1))
    contest = type("Asked", (), {"factors": (1.2,)})
    scores = {(1.2, "vllm"): [one, one], (1.2, "orca"): [one]}
    makers = {(1.2, "vllm"): [OLD, NEW], (1.2, "orca"): [OLD]}
    same = Standings(scores=scores, makers=makers)
    assert not any(line.startswith("!") for line in lines(contest, same))
    mixed = Standings(scores=scores, makers=makers | {(1.2, "orca"): [NEW]})
    assert next(lines(contest, mixed)).startswith("! These runs come from different code or processors: 1 by unknown")
