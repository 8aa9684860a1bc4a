"""A file of the user's that is not there: what was looked for, and what may have been meant."""

from pathlib import Path

import pytest

from headway.cli.main import main
from headway.core import unreadable


@pytest.fixture
def folder(tmp_path):
    """Some files."""
    for name in ("azure_code.csv", "azure_chat.csv", "b.csv", "c.csv", ".hidden.toml", "load.yaml"):
        (tmp_path / name).touch()
    return tmp_path


def said(path):
    return str(unreadable(path, FileNotFoundError(2, "No such file"), "trace"))


def test_names_like_it_are_offered(folder):
    """With the folder as it was given, so that they can be copied."""
    assert said(folder / "azure_cod.csv").startswith(
        f"cannot read trace {folder / 'azure_cod.csv'}: No such file; did you mean {folder / 'azure_code.csv'}"
    )


def test_else_files_of_its_kind_are_named(folder):
    """A few of them."""
    assert said(folder / "zzz.csv").endswith(f"{folder} has azure_chat.csv, azure_code.csv, b.csv and 1 more")
    assert said(folder / "zzz.toml").endswith(f"no file in {folder} ends in .toml; check the path")


def test_a_folder_that_is_missing_is_the_mistake(folder, monkeypatch):
    """A path may begin elsewhere than its user thinks."""
    monkeypatch.chdir(folder)
    assert said(Path("traces/a.csv")).endswith(
        f"nor is there a folder traces that can be read; check the path, which begins at {folder}"
    )


def test_a_file_that_is_there_says_what_is_wrong(folder):
    """In the system's words."""
    assert str(unreadable(folder, IsADirectoryError(21, "Is a directory"))) == f"cannot read {folder}: Is a directory"


@pytest.mark.parametrize(
    "command",
    [
        ("simulate", "{}.csv"),
        ("simulate", "{}.toml"),
        ("bench", "offline", "{}.json"),
        ("bench", "serve", "{}.yaml"),
        ("bench", "compare", "{}.json", "{}.json"),
        ("replay", "{}.jsonl"),
        ("tape", "--policy", "vllm", "{}.json"),
        ("generate", "--input", "{}.jsonl"),
        ("serve", "--config", "{}.toml"),
        ("serve", "--tenants", "{}.toml"),
        ("tenants", "check", "{}.toml"),
        ("tune", "load.yaml", "--slo", "{}.toml"),
    ],
)
def test_every_command_says_so_in_a_line(folder, capsys, monkeypatch, command):
    """Status 2, before anything is loaded."""
    monkeypatch.chdir(folder)
    assert main([word.format("nowhere") for word in command]) == 2
    err = capsys.readouterr().err
    assert "nowhere." in err
    assert "No such file or directory; " in err
    assert str(folder) in err
    assert err.count("\n") == 1
