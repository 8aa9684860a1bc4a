"""An opened GGUF model: its config, its tokenizer's parts, and its tensors on demand.

Everything is checked when the file is opened (kind of file, architecture, every tensor's presence, shape and type), so
a model that opens can be loaded. Files stay memory-mapped; opening reads their headers alone.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from gguf import quants
from gguf.constants import GGMLQuantizationType
from numpy.typing import NDArray

from headway.errors import BadModelFile
from headway.models.config import ModelConfig
from headway.models.gguf_config import ROPE_DIVISORS, read_config
from headway.models.gguf_header import TensorInfo
from headway.models.gguf_parts import GgufParts, open_parts
from headway.models.layout import OUTSIDE, all_tensors, gguf_name
from headway.models.metadata import Metadata
from headway.models.tokenizer_spec import TokenizerSpec, spec_from_gguf

READABLE = ("F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q4_K", "Q5_K", "Q6_K")
_BLOCKS_AT_ONCE = 8_192  # small enough for the temporaries to stay in the processor's cache


class GgufFile:
    """A model in a GGUF file or its parts. `config`, `tokenizer_spec` and `chat_template` are ready after `open`."""

    def __init__(self, path: Path, parts: GgufParts) -> None:
        meta = Metadata(str(path), parts.metadata)
        self.path = path
        self._places = parts.places
        divisors = tuple(self._divisors(path).tolist()) if ROPE_DIVISORS in parts.places else None
        self.config = read_config(path, meta, parts.tensors, divisors)
        self.tokenizer_spec: TokenizerSpec = spec_from_gguf(path, parts.metadata)
        self.chat_template: str | None = meta.text("tokenizer.chat_template")
        num_tokens = len(self.tokenizer_spec.tokens)
        if num_tokens != self.config.vocab_size:
            raise BadModelFile(f"{path}: {num_tokens} tokens, but embeddings for {self.config.vocab_size}")
        _check_tensors(path, self.config, parts.tensors)

    @classmethod
    def open(cls, path: Path) -> GgufFile:
        """Maps the file, and all parts of a split one, and checks their directories.

        Raises BadModelFile, saying what is wrong and where.
        """
        if path.is_dir():
            raise BadModelFile(f"{path} is a directory, not a GGUF file")
        return cls(path, open_parts(path))

    @property
    def tensors(self) -> dict[str, TensorInfo]:
        """Every tensor's name, shape, type and place in its part."""
        return {name: info for name, (_, info) in self._places.items()}

    def stored_name(self, name: str, layer: int = OUTSIDE) -> str:
        """What GGUF calls a tensor of `models.layout`."""
        return gguf_name(name, layer)

    def raw(self, name: str) -> NDArray[np.uint8]:
        """The stored bytes of a tensor, read-only and not copied: one row of bytes for each row of weights."""
        part, info = self._places[name]
        flat = np.frombuffer(part.data, np.uint8, info.num_bytes, info.offset)
        return flat.reshape(*info.shape[:-1], -1)

    def tensor(self, name: str) -> NDArray[np.float32]:
        """A tensor as a new, writable float32 array of its shape; quantised values are exactly those of the format."""
        _, info = self._places[name]
        return dequantise(self.raw(name), info.kind).reshape(info.shape)

    def _divisors(self, path: Path) -> NDArray[np.float32]:
        _, info = self._places[ROPE_DIVISORS]
        if info.kind is not GGMLQuantizationType.F32 or len(info.shape) != 1 or info.shape[0] > 1 << 12:
            raise BadModelFile(f"{path}: {ROPE_DIVISORS} is {info.kind.name} of shape {info.shape}, not a float32 list")
        return self.tensor(ROPE_DIVISORS)


def dequantise(raw: NDArray[np.uint8], kind: GGMLQuantizationType) -> NDArray[np.float32]:
    """Float32 values of stored bytes, flat: the same numbers as `gguf.quants.dequantize`.

    Several times as fast, too: the library works on 16 rows at a time, this on as many blocks as fit the processor's
    cache.
    """
    if kind is GGMLQuantizationType.F32:
        return raw.reshape(-1).view("<f4").astype(np.float32)
    if kind is GGMLQuantizationType.F16:
        return raw.reshape(-1).view("<f2").astype(np.float32)
    traits: Any = getattr(quants, kind.name)
    per_block, block_bytes = traits.block_size, traits.type_size
    blocks = raw.reshape(-1, block_bytes)
    if kind is GGMLQuantizationType.BF16:
        blocks = raw.reshape(1, -1)  # its "block" is one number
    out = np.empty((len(blocks), blocks.shape[1] // block_bytes * per_block), np.float32)
    with np.errstate(all="ignore"):  # infinities of a damaged file are found by whoever checks the weights
        for start in range(0, len(blocks), _BLOCKS_AT_ONCE):
            stop = start + _BLOCKS_AT_ONCE
            out[start:stop] = traits.dequantize_blocks(blocks[start:stop])
    return out.reshape(-1)


def _check_tensors(path: Path, config: ModelConfig, tensors: dict[str, TensorInfo]) -> None:
    expected = {gguf_name(*key): shape for key, shape in all_tensors(config).items()}
    for name, shape in expected.items():
        if (info := tensors.get(name)) is None:
            raise BadModelFile(f"{path}: tensor {name!r} is missing")
        if info.shape != shape:
            raise BadModelFile(f"{path}: tensor {name!r} has shape {info.shape}, the metadata says {shape}")
        if info.kind.name not in READABLE:
            raise BadModelFile(
                f"{path}: tensor {name!r} is stored as {info.kind.name}, which is not supported; "
                f"supported: {', '.join(READABLE)}"
            )
    if unknown := [name for name in tensors if name not in expected and name != ROPE_DIVISORS]:
        raise BadModelFile(
            f"{path}: tensor {unknown[0]!r} belongs to no supported {config.architecture} model; "
            "ignoring it would give wrong answers"
        )
