"""What a measured run leaves: tables on stdout, files where the user wants them, and an exit status."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headway.cli.output import notices, print_json, results
from headway.errors import BadSetting

if TYPE_CHECKING:
    from headway.report import RunRecord

_PANEL = "Results"
INTERRUPTED = 130

ResultFile = Annotated[
    Path | None,
    typer.Option(
        "--output",
        "-o",
        help="Write the results there, as JSON, for `bench compare`.",
        show_default=False,
        rich_help_panel=_PANEL,
    ),
]
CsvFile = Annotated[
    Path | None,
    typer.Option("--csv", help="Write one row per request there.", show_default=False, rich_help_panel=_PANEL),
]
HtmlFile = Annotated[
    Path | None,
    typer.Option(
        "--html", help="Write a self-contained page with plots there.", show_default=False, rich_help_panel=_PANEL
    ),
]
Detailed = Annotated[
    bool,
    typer.Option(
        "--save-detailed", help="vLLM's lists of every request in the JSON of --json too.", rich_help_panel=_PANEL
    ),
]
Label = Annotated[str, typer.Option(help="Name of the run in reports.", show_default=False, rich_help_panel=_PANEL)]


def check_paths(given: dict[str, Any]) -> None:
    """Refuse files that cannot be written, before anything is measured. Raises `BadSetting`."""
    for flag in ("output", "csv", "html"):
        path: Path | None = given[flag]
        if path is not None and (path.is_dir() or not path.resolve().parent.is_dir()):
            raise BadSetting(f"--{flag} {path}: it must be a file in a folder that exists")


def report(run: RunRecord, given: dict[str, Any]) -> int:
    """Print and write a run. The status is 0, 1 where its latencies must not be quoted, 130 after Ctrl-C."""
    from headway.report import judge, measure, result_json, run_page, run_text, save_csv, save_run, with_details

    run = replace(run, environment=environment(), label=given["label"] or run.label)
    metrics = measure(run)
    if given["output"] is not None:
        save_run(run, given["output"])
    if given["csv"] is not None:
        save_csv(run, given["csv"])
    if given["html"] is not None:
        write(given["html"], run_page(run, metrics))
    document = result_json(run, metrics)
    if given["save_detailed"]:
        document = with_details(document, run)
    if given["as_json"]:
        print_json(document)
    else:
        results().print(run_text(run, metrics), markup=False, soft_wrap=True)
    if not run.is_complete:
        notices().print(f"headway bench: {run.notes[0]}", markup=False, soft_wrap=True)
        return INTERRUPTED if "interrupted" in run.notes[0] else 1
    return 0 if judge(run, metrics).is_valid else 1


def environment() -> dict[str, object]:
    """The machine that measured, and its versions."""
    import os
    import platform

    from headway import __version__

    return {
        "headway": __version__,
        "python": platform.python_version(),
        "machine": f"{platform.system()} {platform.machine()}",
        "num_cpus": os.cpu_count(),
    }


def write(path: Path, content: str) -> None:
    """Write a text. Raises `BadSetting`."""
    try:
        path.write_text(content, encoding="utf-8")
    except OSError as error:
        raise BadSetting(f"cannot write {path}: {error.strerror}") from None
