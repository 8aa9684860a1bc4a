"""Every tape in this folder is what its command prints: rows are requests, columns steps, cells tokens granted."""

import shlex
from pathlib import Path

import pytest

from headway.sim import load_scene, picture, run_scene

HERE = Path(__file__).parent
TAPES = sorted(HERE.glob("*/*.tape"))


def parse_command(line):
    """Scene file, policy and settings of a tape's first line."""
    scene, *words = shlex.split(line)
    options = list(zip(words[::2], words[1::2], strict=True))
    (policy,) = (value for key, value in options if key == "--policy")
    settings = dict(value.split("=", 1) for key, value in options if key == "--set")
    assert len(options) == len(settings) + 1, f"unknown option in {line!r}"
    return HERE / "scenes" / scene, policy, settings


@pytest.mark.parametrize("path", TAPES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_tape(path):
    """The policy does with the scene what the picture shows."""
    command, _, wanted = path.read_text().partition("\n\n")
    scene_path, policy, settings = parse_command(command)
    scene = load_scene(scene_path)
    assert picture(scene, run_scene(scene, policy, settings)) == wanted.rstrip("\n")
