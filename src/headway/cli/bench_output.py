"""What a measured run leaves: tables on stdout, files where the user wants them, and an exit status."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
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
        if path is not None:
            require_writable(path, f"--{flag} {path}")


def require_writable(path: Path, name: str) -> None:
    """Raise `BadSetting` for what no file can be written to: hours later it is too late to say so."""
    folder = path.absolute().parent
    if path.is_dir() or not folder.is_dir():
        raise BadSetting(f"{name}: it must be a file in a folder that exists")
    if not os.access(path if path.exists() else folder, os.W_OK):
        raise BadSetting(f"{name}: this user may not write there")


def report(run: RunRecord, given: dict[str, Any]) -> int:
    """Write and print a run. The status is 0, 1 where its latencies must not be quoted, 130 after Ctrl-C.

    A file that cannot be written after all costs neither the figures nor the other files. Raises `BadSetting` for it.
    """
    from headway.report import judge, measure, result_json, run_page, run_text, save_csv, save_run, with_details

    run = replace(run, environment=environment(), label=given["label"] or run.label)
    metrics = measure(run)
    document = result_json(run, metrics)
    if given["save_detailed"]:
        document = with_details(document, run)
    write_then(
        {
            given["output"]: lambda path: save_run(run, path),
            given["csv"]: lambda path: save_csv(run, path),
            given["html"]: lambda path: write(path, run_page(run, metrics)),
        },
        lambda: (
            print_json(document)
            if given["as_json"]
            else results().print(run_text(run, metrics), markup=False, soft_wrap=True)
        ),
    )
    if not run.is_complete:
        notices().print(f"headway: {run.notes[0]}", markup=False, soft_wrap=True)
        return INTERRUPTED if "interrupted" in run.notes[0] else 1
    return 0 if judge(run, metrics).is_valid else 1


def write_then(writers: Mapping[Path | None, Callable[[Path], None]], say: Callable[[], None]) -> None:
    """Write every file that has a path, then say on stdout, whose reader may leave in the middle, as `head` does.

    A file that fails keeps neither the others nor the words back. Raises `BadSetting` for those that failed.
    """
    failures: list[str] = []
    try:
        for path, writer in writers.items():
            try:
                if path is not None:
                    writer(path)
            except BadSetting as error:
                failures.append(str(error))
    finally:
        say()
    if failures:
        raise BadSetting("; ".join(failures))


def environment() -> dict[str, object]:
    """The machine that measured, and its versions."""
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
