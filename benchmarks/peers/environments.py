"""Where peers live: an environment of its own for each, and their model files, under the user's cache folder."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import platformdirs

PACKAGES = {"llamacpp": "xllamacpp==2026.10.11549", "openvino": "openvino-genai==2026.4.1.0"}
"""Pinned: a table without versions cannot be checked."""


def folder() -> Path:
    """Everything of the peers; removing it removes them."""
    return platformdirs.user_cache_path("headway") / "peers"


def python(peer: str) -> Path:
    """The interpreter of a peer's environment, which is made on first use. Raises `CalledProcessError`."""
    home = folder() / peer
    found = home / "bin" / "python"
    stamp = home / f"{PACKAGES[peer]}.installed"
    if not stamp.exists():
        print(f"installing {PACKAGES[peer]} ...", flush=True)
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(home)], check=True)  # noqa: S603 - no input
        subprocess.run([str(found), "-m", "pip", "install", "-q", PACKAGES[peer]], check=True)  # noqa: S603 - pinned
        stamp.touch()
    return found
