"""The directory of a GGUF file: its metadata and where each tensor lies. No tensor is read here.

The `gguf` library's own reader needs seconds for a large vocabulary and trusts every length it reads, so a damaged
file can make it loop or fail in odd ways. This one reads the same layout (GGUF versions 2 and 3, little-endian) from a
memory map, checks every length against the file before using it, and raises BadModelFile with the byte at fault.
"""

from __future__ import annotations

import math
import mmap
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

from headway.errors import BadModelFile

Value = Any  # of metadata: str, int, float, bool, or a list of one of them

_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
_MAX_DIMS = 4
_MAX_NAME = 200  # characters; real ones have a few dozen, and messages quote them
_MIN_TENSOR_BYTES = 8 + 4 + 4 + 8  # an empty name, no dimension, type, offset
_MIN_PAIR_BYTES = 8 + 4 + 1


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """One tensor's place. `shape` is in NumPy order (rows first); `offset` and `num_bytes` are bytes in the file."""

    name: str
    shape: tuple[int, ...]
    kind: GGMLQuantizationType
    offset: int
    num_bytes: int


@dataclass(frozen=True, slots=True)
class GgufHeader:
    """Everything before the tensors. Values of `metadata` are str, int, float, bool, or lists of one of them."""

    metadata: dict[str, Value]
    tensors: dict[str, TensorInfo]


def read_header(path: Path, data: mmap.mmap) -> GgufHeader:
    """The header of a mapped GGUF file; every tensor named in it lies wholly inside the file.

    Raises BadModelFile for anything else: another kind of file, a cut or damaged one, an unknown tensor type.
    """
    cursor = _Cursor(path, data)
    if data[:4] != b"GGUF":
        raise BadModelFile(
            f"{path} is not a GGUF file: it begins with {bytes(data[:4]).decode('latin-1')!r}, not 'GGUF'"
        )
    cursor.at = 4
    version = cursor.scalar("I")
    if version not in (2, 3):
        swapped = int.from_bytes(version.to_bytes(4, "little"), "big")
        what = (
            "big-endian, only little-endian is supported" if swapped in (2, 3) else f"version {version}, known are 2, 3"
        )
        raise BadModelFile(f"{path}: GGUF file is {what}")
    num_tensors, num_pairs = cursor.count(_MIN_TENSOR_BYTES), cursor.count(_MIN_PAIR_BYTES)
    metadata: dict[str, Value] = {}
    for _ in range(num_pairs):
        key = cursor.name()
        if key in metadata:
            raise cursor.fault(f"metadata key {key!r} appears twice")
        metadata[key] = cursor.value(cursor.scalar("I"))
    entries = [_read_entry(cursor) for _ in range(num_tensors)]
    alignment = metadata.get("general.alignment", 32)
    if not isinstance(alignment, int) or not 8 <= alignment <= 1 << 20 or alignment & (alignment - 1):
        raise cursor.fault(f"general.alignment is {repr(alignment)[:60]}, not a power of two from 8 to 1048576")
    start = -(-cursor.at // alignment) * alignment
    return GgufHeader(metadata, _place(cursor, entries, start, alignment))


def _read_entry(cursor: _Cursor) -> TensorInfo:
    """One tensor's entry, its offset still relative to the start of the tensor data."""
    name = cursor.name()
    num_dims = cursor.scalar("I")
    if not 1 <= num_dims <= _MAX_DIMS:
        raise cursor.fault(f"tensor {name!r} has {num_dims} dimensions, allowed are 1 to {_MAX_DIMS}")
    dims = [cursor.scalar("Q") for _ in range(num_dims)]
    kind_id, offset = cursor.scalar("I"), cursor.scalar("Q")
    try:
        kind = GGMLQuantizationType(kind_id)
        per_block, block_bytes = GGML_QUANT_SIZES[kind]
    except (ValueError, KeyError):
        raise cursor.fault(f"tensor {name!r} has the unknown type {kind_id}") from None
    if min(dims) < 1 or dims[0] % per_block:
        raise cursor.fault(f"tensor {name!r} of type {kind.name} has the impossible shape {dims}")
    return TensorInfo(name, tuple(reversed(dims)), kind, offset, math.prod(dims) // per_block * block_bytes)


def _place(cursor: _Cursor, entries: list[TensorInfo], start: int, alignment: int) -> dict[str, TensorInfo]:
    placed: dict[str, TensorInfo] = {}
    for entry in entries:
        end = start + entry.offset + entry.num_bytes
        if end > cursor.size:
            raise BadModelFile(
                f"{cursor.path} is cut short: tensor {entry.name!r} ends at byte {end}, the file at "
                f"byte {cursor.size}; fetch it again"
            )
        if entry.offset % alignment:
            raise cursor.fault(f"tensor {entry.name!r} is not aligned to {alignment} bytes")
        if entry.name in placed:
            raise cursor.fault(f"tensor {entry.name!r} appears twice")
        placed[entry.name] = TensorInfo(entry.name, entry.shape, entry.kind, start + entry.offset, entry.num_bytes)
    return placed


class _Cursor:
    """Reads values one after another and never past the end of the file."""

    def __init__(self, path: Path, data: mmap.mmap) -> None:
        self.path, self.size, self.at = path, len(data), 0
        self._data = data

    def fault(self, what: str) -> BadModelFile:
        return BadModelFile(f"{self.path}: damaged GGUF header near byte {self.at}: {what}")

    def _take(self, num_bytes: int) -> int:
        """Steps over `num_bytes` and says where they began."""
        start = self.at
        if num_bytes > self.size - start:
            raise BadModelFile(
                f"{self.path} is cut short or damaged: {num_bytes} bytes expected at byte {start} of the header, "
                f"the file ends at byte {self.size}"
            )
        self.at = start + num_bytes
        return start

    def scalar(self, code: str) -> Value:
        start = self._take(struct.calcsize("<" + code))
        return struct.unpack_from("<" + code, self._data, start)[0]

    def count(self, least_bytes_each: int) -> int:
        """A number of things that follow, each of at least so many bytes."""
        num: int = self.scalar("Q")
        if num * least_bytes_each > self.size - self.at:
            raise self.fault(f"{num} entries cannot fit into the {self.size - self.at} bytes that are left")
        return num

    def name(self) -> str:
        start = self.at
        text = self.string()
        if len(text) > _MAX_NAME:
            self.at = start
            raise self.fault(f"a name of {len(text)} characters, at most {_MAX_NAME} are allowed")
        return text

    def string(self) -> str:
        num: int = self.scalar("Q")
        start = self._take(num)
        try:
            return self._data[start : start + num].decode("utf-8")
        except UnicodeDecodeError:
            self.at = start
            raise self.fault("text that is not UTF-8") from None

    def value(self, kind: int) -> Value:
        if code := _SCALARS.get(kind):
            return self.scalar(code)
        if kind == _STRING:
            return self.string()
        if kind == _ARRAY:
            return self._array(self.scalar("I"))
        raise self.fault(f"unknown value type {kind}")

    def _array(self, kind: int) -> list[Value]:
        if code := _SCALARS.get(kind):
            width = struct.calcsize("<" + code)
            num = self.count(width)
            return list(struct.unpack_from(f"<{num}{code}", self._data, self._take(num * width)))
        if kind == _STRING:
            return self._strings(self.count(8))
        raise self.fault(f"unknown array type {kind}")

    def _strings(self, num: int) -> list[str]:
        # A vocabulary has 10^5 strings: this loop is most of the time of opening a file, hence no call per string.
        data, at, size, unpack = self._data, self.at, self.size, struct.Struct("<Q").unpack_from
        texts: list[str] = []
        try:
            for _ in range(num):
                start = at + 8
                at = start + unpack(data, at)[0]
                if at > size:
                    break
                texts.append(data[start:at].decode("utf-8"))
        except (UnicodeDecodeError, struct.error):
            self.at = min(at, size)
            raise self.fault(f"string {len(texts)} of an array cannot be read") from None
        self.at = min(at, size)
        if len(texts) < num:
            raise self.fault(f"string {len(texts)} of an array reaches beyond the file")
        return texts
