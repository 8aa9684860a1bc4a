"""The documents say what is so: every picture is what its command prints, every policy has its section."""

import re
import shlex
from dataclasses import astuple
from pathlib import Path

import pytest

from headway.cli.main import main
from headway.sched import POLICIES, policy_class
from tests.support.source import FACE
from tests.test_architecture import LAYERS

ROOT = Path(__file__).parent.parent
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")])
POLICIES_PAGE = ROOT / "docs" / "policies.md"


def pictures(page):
    """Commands of `headway tape` in a page's code blocks, each with what the page says that it prints."""
    blocks = re.findall(r"^```\n(.*?)^```$", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    for block in blocks:
        command, _, printed = block.partition("\n")
        if command.startswith("$ ") and " tape " in command:
            yield command.removeprefix("$ "), printed


PICTURES = [pytest.param(*picture, id=f"{page.stem}: {picture[0]}") for page in PAGES for picture in pictures(page)]


@pytest.mark.parametrize(("command", "printed"), PICTURES)
def test_a_picture_is_what_its_command_prints(command, printed, monkeypatch, capsys):
    """Run from the root of the checkout, as a reader would."""
    words = shlex.split(command)
    monkeypatch.chdir(ROOT)
    if words[0].startswith("PYTHONPATH="):
        monkeypatch.syspath_prepend(ROOT / words.pop(0).partition("=")[2])
    assert words.pop(0) == "headway"
    assert main(words) == 0
    assert capsys.readouterr().out == printed


@pytest.mark.parametrize("name", sorted(POLICIES))
def test_a_policy_has_a_row_and_a_section_with_a_picture(name):
    """The row says what `headway policies` says; the section shows the policy at work and where it departs."""
    page = POLICIES_PAGE.read_text(encoding="utf-8")
    assert " | ".join([f"| [{name}](#{name})", *astuple(policy_class(name).axes)]) + " |" in page
    [section] = re.findall(rf"^## {name}\n(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL)
    assert f"--policy {name} " in f"{section} ".replace("\n", " ")
    assert "*Departs" in section


def test_no_section_is_left_of_a_policy_that_is_gone():
    """Sections and policies are the same, in whatever order."""
    page = POLICIES_PAGE.read_text(encoding="utf-8")
    sections = re.findall(r"^## ([a-z_0-9]+)$", page, re.MULTILINE)
    assert sorted(sections) == sorted(POLICIES)


def test_guarantees_name_tests_that_exist():
    """Each `path::test` in the page is there."""
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", POLICIES_PAGE.read_text(encoding="utf-8"))
    assert named
    for path, test in named:
        assert f"\ndef {test}(" in (ROOT / path).read_text(encoding="utf-8"), f"{path} has no {test}"


def test_the_policy_shown_is_the_example():
    """The file in the text is the file in the folder, to the letter."""
    page = (ROOT / "docs" / "adding-a-policy.md").read_text(encoding="utf-8")
    assert f"```python\n{(ROOT / 'examples' / 'my_policy.py').read_text(encoding='utf-8')}```\n" in page


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_links_lead_somewhere(page):
    """Files that a page links to exist."""
    targets = re.findall(r"\]\((?!https?:)([^)#\s]+)", page.read_text(encoding="utf-8"))
    missing = [target for target in targets if not (page.parent / target).exists()]
    assert not missing


def test_the_readme_leads_to_every_document():
    """Nobody has to look into the folder to know what is there."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert [page.name for page in PAGES[1:] if f"](docs/{page.name})" not in readme] == []


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "docs/architecture.md"])
def test_layers_are_told_as_they_are_enforced(page):
    """The table's rows are those of the architecture test, top first."""
    rows = re.findall(r"^\| (\d+) \| ([^|]+) \|", (ROOT / page).read_text(encoding="utf-8"), re.MULTILINE)
    told = {int(row): {part for part in re.findall(r"`([^`]+)`", parts) if "/" not in part} for row, parts in rows}
    assert told == {row: layer - {FACE} for row, layer in enumerate(LAYERS, start=1)}
