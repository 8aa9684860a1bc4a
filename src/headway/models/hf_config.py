"""The config that a Hugging Face folder's config.json describes.

What would change a model's answers and is not written here is refused, never ignored.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headway.errors import BadModelFile
from headway.models.architecture import Architecture, find_architecture
from headway.models.config import ModelConfig
from headway.models.metadata import Metadata
from headway.models.rope import LinearRope, Llama3Rope, RopeScaling

# Keys that switch on what no supported family has, with the values that leave it off.
_OFF: Mapping[str, tuple[object, ...]] = {
    "attention_bias": (None, False),
    "mlp_bias": (None, False),
    "quantization_config": (None,),
    "num_local_experts": (None, 0, 1),
    "num_experts": (None, 0, 1),
    "partial_rotary_factor": (None, 1.0),
    "hidden_act": (None, "silu", "swish"),
}


def read_config(meta: Metadata, *, name: str, quantisation: str) -> ModelConfig:
    """The model's config. `quantisation` names the types of its tensors.

    Raises BadModelFile for an architecture, quantisation or RoPE scaling that cannot be run, and for numbers that
    cannot be.
    """
    family = find_architecture(model_type := meta.text("model_type"), meta.origin)
    _refuse_extensions(meta)
    num_heads = meta.whole("num_attention_heads")
    hidden_size = meta.whole("hidden_size")
    context_length = meta.whole("max_position_embeddings")
    rope = _rope(meta)
    try:
        return ModelConfig(
            name=name[:100],
            architecture=str(model_type),
            num_layers=meta.whole("num_hidden_layers"),
            hidden_size=hidden_size,
            num_heads=num_heads,
            num_kv_heads=meta.whole("num_key_value_heads", num_heads),
            head_dim=meta.whole("head_dim", family.head_dim or hidden_size // max(num_heads, 1)),
            ffn_size=meta.whole("intermediate_size"),
            vocab_size=meta.whole("vocab_size"),
            context_length=min(context_length, _window(meta, family) or context_length),
            rope_base=rope.number("rope_theta", meta.number("rope_theta", 10_000.0)),
            rope_scaling=_scaling(rope, context_length),
            rope_pairs="half_split",
            qkv_bias=family.qkv_bias,
            qk_norm=family.qk_norm,
            norm_eps=meta.number("rms_norm_eps"),
            tied_embeddings=meta.flag("tie_word_embeddings"),
            quantisation=quantisation,
        )
    except BadModelFile as error:
        raise BadModelFile(str(error) if meta.origin in str(error) else f"{meta.origin}: {error}") from None


def _refuse_extensions(meta: Metadata) -> None:
    for key, off in _OFF.items():
        value = meta.values.get(key)
        if value not in off:
            shown = value.get("quant_method", value) if isinstance(value, dict) else value
            raise BadModelFile(f"{meta.origin}: {key} {repr(shown)[:60]} is not supported")


def _window(meta: Metadata, family: Architecture) -> int | None:
    """Tokens that a token sees at most, None for all."""
    if family.window_is_optional and not meta.flag("use_sliding_window"):
        return None
    if "sliding_window" not in meta.values:
        return family.default_window
    return meta.whole("sliding_window", 0) or None


def _rope(meta: Metadata) -> Metadata:
    """Where the file describes rotary positions: under one name of old, under another since transformers 5."""
    for key in ("rope_parameters", "rope_scaling"):
        value: Any = meta.values.get(key)
        if value is not None and not isinstance(value, dict):
            raise meta.fault(key, "an object")
        if value:
            return Metadata(f"{meta.origin}: {key}", value)
    return Metadata(f"{meta.origin}: rope_scaling", {})


def _scaling(rope: Metadata, context_length: int) -> RopeScaling | None:
    if rope.number("partial_rotary_factor", 1.0) != 1.0:
        raise rope.fault("partial_rotary_factor", "1")
    match rope.text("rope_type") or rope.text("type") or "default":
        case "default":
            return None
        case "linear":
            return LinearRope(rope.number("factor"))
        case "llama3":
            return Llama3Rope(
                factor=rope.number("factor"),
                low_freq_factor=rope.number("low_freq_factor"),
                high_freq_factor=rope.number("high_freq_factor"),
                original_context_length=rope.whole("original_max_position_embeddings", context_length),
            )
        case kind:
            raise BadModelFile(
                f"{rope.origin}: RoPE scaling {kind[:60]!r} is not supported; supported: default, linear, llama3"
            )
