"""The config that a GGUF file's metadata and tensors describe."""

from __future__ import annotations

from pathlib import Path

from headway.errors import BadModelFile
from headway.models.architecture import find_architecture
from headway.models.config import ModelConfig
from headway.models.gguf_header import TensorInfo
from headway.models.metadata import Metadata
from headway.models.rope import DividedRope, LinearRope, RopeScaling

ROPE_DIVISORS = "rope_freqs.weight"


def read_config(
    path: Path, meta: Metadata, tensors: dict[str, TensorInfo], divisors: tuple[float, ...] | None
) -> ModelConfig:
    """The model's config; `divisors` are the numbers of tensor `ROPE_DIVISORS` where the file has one.

    Raises BadModelFile for an architecture or RoPE scaling that cannot be run, and for numbers that cannot be.
    """
    name = meta.text("general.architecture")
    family = find_architecture(name, meta.origin)
    embedding = tensors.get("token_embd.weight")
    if embedding is None or len(embedding.shape) != 2:
        raise BadModelFile(f"{path}: tensor 'token_embd.weight' is missing or not a matrix")
    if meta.whole(f"{name}.expert_count", 0):
        raise BadModelFile(f"{path}: mixture-of-experts models are not supported")
    num_heads = meta.whole(f"{name}.attention.head_count")
    hidden_size = meta.whole(f"{name}.embedding_length")
    try:
        return ModelConfig(
            name=(meta.text("general.name") or path.stem)[:100],
            architecture=str(name),
            num_layers=meta.whole(f"{name}.block_count"),
            hidden_size=hidden_size,
            num_heads=num_heads,
            num_kv_heads=meta.whole(f"{name}.attention.head_count_kv", num_heads),
            head_dim=_head_dim(meta, str(name), hidden_size // max(num_heads, 1)),
            ffn_size=meta.whole(f"{name}.feed_forward_length"),
            vocab_size=embedding.shape[0],
            context_length=_context_length(meta, str(name)),
            rope_base=meta.real(f"{name}.rope.freq_base", 10_000.0),
            rope_scaling=_rope_scaling(meta, str(name), divisors),
            rope_pairs=family.gguf_rope_pairs,
            qkv_bias=family.qkv_bias,
            qk_norm=family.qk_norm,
            norm_eps=meta.real(f"{name}.attention.layer_norm_rms_epsilon"),
            tied_embeddings="output.weight" not in tensors,
            quantisation=_kinds(tensors),
        )
    except BadModelFile as error:
        raise BadModelFile(str(error) if str(path) in str(error) else f"{path}: {error}") from None


def _head_dim(meta: Metadata, name: str, usual: int) -> int:
    head_dim = meta.whole(f"{name}.attention.key_length", usual)
    for key in ("attention.value_length", "rope.dimension_count"):
        if (size := meta.whole(f"{name}.{key}", head_dim)) != head_dim:
            raise BadModelFile(f"{meta.origin}: {name}.{key} is {size}, supported is the head size {head_dim} alone")
    return head_dim


def _context_length(meta: Metadata, name: str) -> int:
    length = meta.whole(f"{name}.context_length")
    return min(length, meta.whole(f"{name}.attention.sliding_window", 0) or length)


def _rope_scaling(meta: Metadata, name: str, divisors: tuple[float, ...] | None) -> RopeScaling | None:
    kind = meta.text(f"{name}.rope.scaling.type") or "none"
    if kind not in ("none", "linear"):
        raise BadModelFile(
            f"{meta.origin}: RoPE scaling {kind[:60]!r} is not supported; supported: none, linear, and Llama 3's"
        )
    if divisors is not None:
        if kind != "none":
            raise BadModelFile(f"{meta.origin}: RoPE scaling {kind!r} together with {ROPE_DIVISORS} is not supported")
        return DividedRope(divisors)
    # The older of the two keys for the factor stood alone.
    factor = meta.real(f"{name}.rope.scaling.factor" if kind == "linear" else f"{name}.rope.scale_linear", 1.0)
    return None if factor == 1.0 else LinearRope(factor)


def _kinds(tensors: dict[str, TensorInfo]) -> str:
    """Types by the bytes they hold, largest first."""
    num_bytes: dict[str, int] = {}
    for info in tensors.values():
        num_bytes[info.kind.name] = num_bytes.get(info.kind.name, 0) + info.num_bytes
    return ", ".join(sorted(num_bytes, key=lambda kind: -num_bytes[kind]))
