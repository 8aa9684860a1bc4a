"""An opened GGUF model: its config, its tokenizer's parts, and its tensors on demand.

Everything is checked when the file is opened (kind of file, architecture, every tensor's presence, shape and type), so
a model that opens can be loaded. The file stays memory-mapped; opening reads its header alone.
"""

from __future__ import annotations

import mmap
from pathlib import Path
from typing import Any

import numpy as np
from gguf import quants
from gguf.constants import GGMLQuantizationType
from numpy.typing import NDArray

from headway.errors import BadModelFile
from headway.models.config import ModelConfig
from headway.models.gguf_header import GgufHeader, TensorInfo, read_header
from headway.models.tokenizer_spec import TokenizerSpec, spec_from_gguf

ARCHITECTURES = ("llama",)
READABLE = ("F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q4_K", "Q5_K", "Q6_K")
_BLOCKS_AT_ONCE = 8_192  # small enough for the temporaries to stay in the processor's cache


class GgufFile:
    """A Llama-type model in a GGUF file. `config`, `tokenizer_spec` and `chat_template` are ready after `open`.

    Weights of query and key projections are stored for rotary positions on *neighbouring* pairs (2i, 2i + 1): see
    `models.weights`.
    """

    def __init__(self, path: Path, header: GgufHeader, data: mmap.mmap) -> None:
        self.path = path
        self.config = _config(path, header)
        self.tokenizer_spec: TokenizerSpec = spec_from_gguf(path, header.metadata)
        self.chat_template: str | None = _text(path, header.metadata, "tokenizer.chat_template")
        self._tensors = header.tensors
        self._data = data
        num_tokens = len(self.tokenizer_spec.tokens)
        if num_tokens != self.config.vocab_size:
            raise BadModelFile(f"{path}: {num_tokens} tokens, but embeddings for {self.config.vocab_size}")
        _check_tensors(path, self.config, header.tensors)

    @classmethod
    def open(cls, path: Path) -> GgufFile:
        """Maps the file and checks its whole directory. Raises BadModelFile, saying what is wrong and where."""
        if path.is_dir():
            raise BadModelFile(f"{path} is a directory; models are read from .gguf files so far")
        try:
            with path.open("rb") as file:
                data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except ValueError:
            raise BadModelFile(f"{path} is empty, not a GGUF file") from None
        except OSError as error:
            raise BadModelFile(f"cannot read {path}: {error.strerror or error}") from None
        return cls(path, read_header(path, data), data)

    @property
    def tensors(self) -> dict[str, TensorInfo]:
        """Every tensor's name, shape, type and place."""
        return dict(self._tensors)

    def raw(self, name: str) -> NDArray[np.uint8]:
        """The stored bytes of a tensor, read-only and not copied: one row of bytes for each row of weights."""
        info = self._tensors[name]
        flat = np.frombuffer(self._data, np.uint8, info.num_bytes, info.offset)
        return flat.reshape(*info.shape[:-1], -1)

    def tensor(self, name: str) -> NDArray[np.float32]:
        """A tensor as a new, writable float32 array of its shape; quantised values are exactly those of the format."""
        info = self._tensors[name]
        return dequantise(self.raw(name), info.kind).reshape(info.shape)


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


def _config(path: Path, header: GgufHeader) -> ModelConfig:
    meta = header.metadata
    architecture = _text(path, meta, "general.architecture")
    if architecture not in ARCHITECTURES:
        raise BadModelFile(
            f"{path}: architecture {repr(architecture)[:60]} is not supported; supported: {', '.join(ARCHITECTURES)}"
        )
    _refuse_extensions(path, meta, architecture)
    embedding = header.tensors.get("token_embd.weight")
    if embedding is None or len(embedding.shape) != 2:
        raise BadModelFile(f"{path}: tensor 'token_embd.weight' is missing or not a matrix")
    num_heads = _whole(path, meta, f"{architecture}.attention.head_count")
    hidden_size = _whole(path, meta, f"{architecture}.embedding_length")
    head_dim = _whole(path, meta, f"{architecture}.attention.key_length", hidden_size // max(num_heads, 1))
    for key in ("attention.value_length", "rope.dimension_count"):
        if (size := _whole(path, meta, f"{architecture}.{key}", head_dim)) != head_dim:
            raise BadModelFile(f"{path}: {architecture}.{key} is {size}, supported is the head size {head_dim} alone")
    return _named(
        path,
        name=(_text(path, meta, "general.name") or path.stem)[:100],
        architecture=architecture,
        num_layers=_whole(path, meta, f"{architecture}.block_count"),
        hidden_size=hidden_size,
        num_heads=num_heads,
        num_kv_heads=_whole(path, meta, f"{architecture}.attention.head_count_kv", num_heads),
        head_dim=head_dim,
        ffn_size=_whole(path, meta, f"{architecture}.feed_forward_length"),
        vocab_size=embedding.shape[0],
        context_length=_whole(path, meta, f"{architecture}.context_length"),
        rope_base=_real(path, meta, f"{architecture}.rope.freq_base", 10_000.0),
        norm_eps=_real(path, meta, f"{architecture}.attention.layer_norm_rms_epsilon"),
        tied_embeddings="output.weight" not in header.tensors,
        quantisation=_kinds(header.tensors),
    )


def _named(path: Path, **fields: Any) -> ModelConfig:  # noqa: ANN401 - the fields' types are ModelConfig's
    try:
        return ModelConfig(**fields)
    except BadModelFile as error:
        raise BadModelFile(f"{path}: {error}") from None


def _refuse_extensions(path: Path, meta: dict[str, Any], architecture: str) -> None:
    """Refuses what would run but give wrong answers if it were ignored."""
    if _whole(path, meta, "split.count", 1) > 1:
        raise BadModelFile(f"{path} is one part of {meta['split.count']}; merge the parts into one file first")
    if _whole(path, meta, f"{architecture}.expert_count", 0):
        raise BadModelFile(f"{path}: mixture-of-experts models are not supported")
    scaling = meta.get(f"{architecture}.rope.scaling.type", "none")
    if scaling != "none":
        raise BadModelFile(f"{path}: RoPE scaling {repr(scaling)[:60]} is not supported")


def _kinds(tensors: dict[str, TensorInfo]) -> str:
    """Types by the bytes they hold, largest first."""
    num_bytes: dict[str, int] = {}
    for info in tensors.values():
        num_bytes[info.kind.name] = num_bytes.get(info.kind.name, 0) + info.num_bytes
    return ", ".join(sorted(num_bytes, key=lambda kind: -num_bytes[kind]))


def expected_shapes(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    """Every tensor that a Llama-type GGUF file of this shape holds, with its shape (outputs first)."""
    hidden, query, kv, ffn = config.hidden_size, config.query_size, config.kv_size, config.ffn_size
    shapes: dict[str, tuple[int, ...]] = {
        "token_embd.weight": (config.vocab_size, hidden),
        "output_norm.weight": (hidden,),
    }
    if not config.tied_embeddings:
        shapes["output.weight"] = (config.vocab_size, hidden)
    layer: dict[str, tuple[int, ...]] = {
        "attn_norm": (hidden,),
        "attn_q": (query, hidden),
        "attn_k": (kv, hidden),
        "attn_v": (kv, hidden),
        "attn_output": (hidden, query),
        "ffn_norm": (hidden,),
        "ffn_gate": (ffn, hidden),
        "ffn_up": (ffn, hidden),
        "ffn_down": (hidden, ffn),
    }
    for index in range(config.num_layers):
        shapes |= {f"blk.{index}.{name}.weight": shape for name, shape in layer.items()}
    return shapes


def _check_tensors(path: Path, config: ModelConfig, tensors: dict[str, TensorInfo]) -> None:
    expected = expected_shapes(config)
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
    if unknown := [name for name in tensors if name not in expected]:
        raise BadModelFile(
            f"{path}: tensor {unknown[0]!r} belongs to no supported {config.architecture} model; "
            "ignoring it would give wrong answers"
        )


def _text(path: Path, meta: dict[str, Any], key: str) -> str | None:
    value = meta.get(key)
    if value is not None and not isinstance(value, str):
        raise BadModelFile(f"{path}: {key} is {repr(value)[:60]}, not text")
    return value


def _whole(path: Path, meta: dict[str, Any], key: str, default: int | None = None) -> int:
    value = meta.get(key, default)
    if value is None:
        raise BadModelFile(f"{path}: metadata has no {key}")
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 1 << 32:
        raise BadModelFile(f"{path}: {key} is {repr(value)[:60]}, not a whole number")
    return value


def _real(path: Path, meta: dict[str, Any], key: str, default: float | None = None) -> float:
    value = meta.get(key, default)
    if value is None:
        raise BadModelFile(f"{path}: metadata has no {key}")
    if not isinstance(value, float):
        raise BadModelFile(f"{path}: {key} is {repr(value)[:60]}, not a real number")
    return value
