"""`headway replay`: decisions of a server, made again and compared."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from headway.cli.flags import Json
from headway.cli.output import print_json, results

DIFFERS = 1
_MOST_SHOWN = 10
_NOT_THERE = (
    "What was changed while the server ran (`headway admin set`) is not in the file; steps behind a change may differ."
)

File = Annotated[Path, typer.Argument(metavar="FILE", help="What `serve --record-steps` wrote.", show_default=False)]


def replay(file: File, *, as_json: Json = False) -> int:
    """Decide a recorded server's steps again, in virtual time; status 1 where a decision differs."""
    from headway.sim.replay import replay as run_replay

    found = run_replay(file)
    if as_json:
        print_json(asdict(found))
        return DIFFERS if found.differences else 0
    say = results()
    steps = len({difference.step for difference in found.differences})
    verdict = f"{steps} of them differ" if steps else "all the same"
    say.print(f"{found.num_requests} requests, {found.num_steps} steps: {verdict}", markup=False, soft_wrap=True)
    for one in found.differences[:_MOST_SHOWN]:
        line = f"step {one.step}, {one.field}: recorded {one.recorded}, replayed {one.replayed}"
        say.print(line, markup=False, soft_wrap=True)
    if found.differences:
        say.print(_NOT_THERE, markup=False, soft_wrap=True)
    if found.note:
        say.print(found.note, markup=False, soft_wrap=True)
    return DIFFERS if found.differences else 0
