"""`headway reproduce`: a paper's ratio beside ours."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headway.cli.flags import Json
from headway.cli.output import notices, print_json, results
from headway.errors import BadSetting

if TYPE_CHECKING:
    from headway.experiments import Finding

Name = Annotated[str, typer.Argument(metavar="NAME", help="An experiment, or all.", show_default=False)]
Figures = Annotated[
    Path | None,
    typer.Option(
        metavar="FOLDER",
        help="Where figures go, as NAME.svg.",
        show_default="docs/figures; with --quick build/quick/figures",
    ),
]
Document = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="With all: where the document goes.", show_default="papers.md beside FOLDER"),
]
Quick = Annotated[
    bool, typer.Option("--quick", help="A small part of each run, to see that it works; the ratios say nothing.")
]
Seed = Annotated[int, typer.Option("--seed", help="Seed of lengths and arrivals.")]


def reproduce(
    name: Name,
    *,
    figures: Figures = None,
    document: Document = None,
    quick: Quick = False,
    seed: Seed = 1,
    as_json: Json = False,
) -> int:
    """Run a paper's set-up in virtual time and print its ratio beside ours; `all` writes docs/papers.md."""
    from headway.experiments import EXPERIMENTS, QUICK, Effort, experiment

    folder = figures or Path("build/quick/figures" if quick else "docs/figures")
    names = list(EXPERIMENTS) if name == "all" else [name]
    runs = {one: experiment(one) for one in names}
    path = document or folder.parent / "papers.md"
    for needed in (folder, path.parent) if name == "all" else (folder,):
        _make(needed)
    findings: list[Finding] = []
    try:
        for number, (one, run) in enumerate(runs.items(), start=1):
            place = f"{one} ({number} of {len(runs)})"
            findings.append(run(Effort(share=QUICK if quick else 1.0, seed=seed, tell=partial(_tell, place))))
            _draw(findings[-1], folder)
            if not as_json:
                _show(findings[-1])
        if name == "all":
            _write(findings, folder, path)
    finally:
        if as_json and findings:  # those found before a Ctrl-C, too
            documents = [finding.to_json() for finding in findings]
            print_json(documents if name == "all" else documents[0])
    return 0


def _make(folder: Path) -> None:
    """A folder to write into, before minutes are spent. Raises `BadSetting`."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadSetting(f"cannot write into {folder}: {error.strerror}") from None


def _tell(place: str, part: str) -> None:
    notices().print(f"{place}: {part} …", markup=False)


def _draw(finding: Finding, figures: Path) -> None:
    from headway.report.figures import save_chart

    path = figures / f"{finding.name}.svg"
    save_chart(finding.chart, path)
    notices().print(f"figure: {path}", markup=False)


def _show(finding: Finding) -> None:
    say = results()
    say.print(f"{finding.title}\n{finding.source}\n\n{finding.setup}\n", markup=False, soft_wrap=True)
    for table in (finding.ratio_table(), *finding.tables):
        say.print(table.to_text() + "\n", markup=False, soft_wrap=True)
    notes = [f"{ratio.name}: {ratio.why}" for ratio in finding.ratios if ratio.why]
    for note in (*notes, *finding.remarks):
        say.print(f"- {note}", markup=False, soft_wrap=True)
    say.print()


def _write(findings: list[Finding], figures: Path, path: Path) -> None:
    import os

    from headway.experiments import papers_document

    try:
        path.write_text(papers_document(findings, os.path.relpath(figures, path.parent)), encoding="utf-8")
    except OSError as error:
        raise BadSetting(f"cannot write {path}: {error.strerror or error}") from None
    notices().print(f"document: {path}", markup=False)
