"""`headway tape`: what a policy does with a small scene, step by step, in virtual time."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from headway.cli.flags import ConfigFile, Json, PolicyName, Settings
from headway.cli.output import print_json
from headway.cli.values import parse_settings


def tape(
    scene: Annotated[Path, typer.Argument(metavar="SCENE", help="A scene file: block pool and requests, as JSON.")],
    *,
    config: ConfigFile = None,
    policy: PolicyName,
    settings: Settings = None,
    as_json: Json = False,
) -> None:
    """Show what a scheduling policy does with a scene: tokens granted to each request in each step."""
    from headway.sim import as_json as tape_json
    from headway.sim import load_scene, picture, run_scene, tape_params

    del config  # its values have become the defaults of the other flags
    chosen = parse_settings(settings or ())
    loaded = load_scene(scene)
    records = run_scene(loaded, policy, chosen)
    if as_json:
        print_json(tape_json(policy, tape_params(loaded, policy, chosen), records))
    else:
        print(picture(loaded, records))
