"""A GGUF model's files: one, or the parts `name-00001-of-00003.gguf` that a large one is split into.

The first part holds the metadata; each holds its own directory of tensors. Any part names the whole.
"""

from __future__ import annotations

import mmap
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headway.errors import BadModelFile
from headway.models.gguf_header import GgufHeader, TensorInfo, read_header
from headway.models.metadata import Metadata

_NAME = re.compile(r"(.+)-([0-9]{5})-of-([0-9]{5})\.gguf")


@dataclass(frozen=True, slots=True)
class GgufPart:
    """One mapped file and its directory."""

    path: Path
    header: GgufHeader
    data: mmap.mmap

    @classmethod
    def open(cls, path: Path) -> GgufPart:
        """Map a file and read its header. Raises BadModelFile."""
        try:
            with path.open("rb") as file:
                data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except ValueError:
            raise BadModelFile(f"{path} is empty, not a GGUF file") from None
        except OSError as error:
            raise BadModelFile(f"cannot read {path}: {error.strerror or error}") from None
        return cls(path, read_header(path, data), data)


@dataclass(frozen=True, slots=True)
class GgufParts:
    """All parts of a model, the first of which holds its metadata; `places` says in which part a tensor lies."""

    parts: tuple[GgufPart, ...]
    places: dict[str, tuple[GgufPart, TensorInfo]]

    @property
    def metadata(self) -> dict[str, Any]:
        """The model's metadata."""
        return self.parts[0].header.metadata

    @property
    def tensors(self) -> dict[str, TensorInfo]:
        """Every tensor of every part."""
        return {name: info for name, (_, info) in self.places.items()}


def open_parts(path: Path) -> GgufParts:
    """Every file of the model that `path`, any one of them, belongs to; all there, and no tensor in two."""
    first = GgufPart.open(path)
    count = Metadata(str(path), first.header.metadata).whole("split.count", 1)
    parts = [first] if count in (0, 1) else [_part(path, number, count) for number in range(1, count + 1)]
    places: dict[str, tuple[GgufPart, TensorInfo]] = {}
    for part in parts:
        if twice := places.keys() & part.header.tensors.keys():
            raise BadModelFile(f"{part.path}: tensor {min(twice)!r} is in another part too")
        places |= {name: (part, info) for name, info in part.header.tensors.items()}
    wanted = Metadata(str(parts[0].path), parts[0].header.metadata).whole("split.tensors.count", len(places))
    if wanted != len(places):
        raise BadModelFile(f"{parts[0].path}: the parts hold {len(places)} tensors, the metadata says {wanted}")
    return GgufParts(tuple(parts), places)


def whole_name(path: Path) -> str:
    """The file's name without its ending, and without which part it is."""
    split = _NAME.fullmatch(path.name)
    return split[1] if split else path.stem


def _part(path: Path, number: int, count: int) -> GgufPart:
    split = _NAME.fullmatch(path.name)
    if not split or int(split[3]) != count:
        raise BadModelFile(
            f"{path} is one part of {count}; its name must end in -NNNNN-of-{count:05}.gguf for the others to be found"
        )
    part = GgufPart.open(path.with_name(f"{split[1]}-{number:05}-of-{count:05}.gguf"))
    said = part.header.metadata.get("split.no"), part.header.metadata.get("split.count")
    if said != (number - 1, count):
        raise BadModelFile(f"{part.path}: split.no and split.count are {said}, not {(number - 1, count)}")
    return part
