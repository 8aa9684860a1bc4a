"""`headway bench compare`: runs that were measured before, side by side."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from headway.cli.bench_output import HtmlFile, write
from headway.cli.flags import Json
from headway.cli.output import print_json, results
from headway.errors import BadSetting


def compare(
    files: Annotated[list[Path], typer.Argument(metavar="A.json B.json ...", help="Files of `headway bench -o`.")],
    *,
    html: HtmlFile = None,
    as_json: Json = False,
) -> None:
    """Compare results: rates, percentiles, and whether a difference is more than chance."""
    from headway.report import compare_page, compare_runs, compare_warnings, load_run

    if len(files) < 2:
        raise BadSetting("a comparison needs two results: headway bench compare A.json B.json")
    runs = [load_run(path) for path in files]
    if len({run.label for run in runs}) < len(runs):
        runs = [replace(run, label=path.stem) for run, path in zip(runs, files, strict=True)]
    grid, warnings = compare_runs(runs), compare_warnings(runs)
    if html is not None:
        write(html, compare_page(runs))
    if as_json:
        rows = [dict(zip(("metric", *grid.columns[1:]), row, strict=True)) for row in grid.rows]
        print_json({"runs": [str(path) for path in files], "rows": rows, "note": grid.note, "warnings": warnings})
    else:
        lines = [*(f"! {warning}" for warning in warnings), grid.to_text()]
        results().print("\n".join(lines), markup=False, soft_wrap=True)
