"""One safetensors file: where each tensor lies, and its numbers as float32.

The library checks the header (lengths, overlaps, holes); numbers are read from a memory map of our own, because NumPy,
which the library would hand them to, has no bfloat16.
"""

from __future__ import annotations

import json
import math
import mmap
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from headway.errors import BadModelFile

READABLE = ("F32", "F16", "BF16")
_WIDTH = {"F32": 4, "F16": 2, "BF16": 2}


@dataclass(frozen=True, slots=True)
class TensorPlace:
    """A tensor's type, shape, and where its bytes begin in the file."""

    kind: str
    shape: tuple[int, ...]
    offset: int


class SafetensorsFile:
    """A mapped file. Raises BadModelFile for one that is absent, cut short or damaged."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            with safe_open(path, framework="numpy"):
                pass  # the library has checked the header now
            with path.open("rb") as file:
                self._data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except SafetensorError as error:
            raise BadModelFile(f"{path} is no whole safetensors file: {' '.join(str(error).split())[:200]}") from None
        except (OSError, ValueError) as error:
            raise BadModelFile(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from None
        header_bytes = int.from_bytes(self._data[:8], "little")
        header = json.loads(self._data[8 : 8 + header_bytes])
        self.tensors = {
            name: TensorPlace(entry["dtype"], tuple(entry["shape"]), 8 + header_bytes + entry["data_offsets"][0])
            for name, entry in header.items()
            if name != "__metadata__"
        }

    def tensor(self, name: str) -> NDArray[np.float32]:
        """A tensor of one of the `READABLE` types as a new float32 array of its shape."""
        place = self.tensors[name]
        count = math.prod(place.shape)
        raw = np.frombuffer(self._data, np.uint8, count * _WIDTH[place.kind], place.offset)
        return to_float32(raw, place.kind).reshape(place.shape)


def to_float32(raw: NDArray[np.uint8], kind: str) -> NDArray[np.float32]:
    """Float32 values, flat and new, of the bytes of one of the `READABLE` types."""
    if kind == "BF16":  # the upper half of a float32
        return (raw.view("<u2").astype(np.uint32) << 16).view(np.float32)
    return raw.view("<f4" if kind == "F32" else "<f2").astype(np.float32)
