"""A tiny random model of every family and RoPE scaling that can be run: as weights, Hugging Face folder, GGUF file.

Weights follow from a seed, so `tests/golden` keeps the logits of another implementation alone. As a script it writes
all folders, for that implementation to read:

    python -m tests.support.families FOLDER
"""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np

from headway.models import (
    DividedRope,
    LinearRope,
    Llama3Rope,
    LlamaWeights,
    ModelConfig,
    TokenizerSpec,
    random_weights,
    rope_frequencies,
)
from headway.models.layout import gguf_name, hugging_face_name
from tests.support.tiny_model import CHAT_TEMPLATE, named_tensors, tiny_config, tiny_tokenizer_spec, write_gguf

_LLAMA3 = Llama3Rope(factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_context_length=64)
_HALF = {"rope_pairs": "half_split", "tied_embeddings": False}
FAMILIES: dict[str, ModelConfig] = {
    "llama2": tiny_config(**_HALF, num_kv_heads=4),
    "llama3": tiny_config(**_HALF, rope_base=500_000.0, rope_scaling=_LLAMA3),
    "llama-linear": tiny_config(**_HALF, rope_scaling=LinearRope(4.0)),
    "smollm2": tiny_config(rope_pairs="half_split", hidden_size=48, num_heads=3, num_kv_heads=1, norm_eps=1e-5),
    "mistral": tiny_config(**_HALF, architecture="mistral", context_length=256),
    "qwen2": tiny_config(rope_pairs="half_split", architecture="qwen2", qkv_bias=True, rope_base=1e6, norm_eps=1e-6),
    "qwen3": tiny_config(**_HALF, architecture="qwen3", qk_norm=True, head_dim=32, rope_base=1e6, norm_eps=1e-6),
}
MODEL_CLASSES = {"llama": "LlamaForCausalLM", "mistral": "MistralForCausalLM"}


def family_weights(name: str) -> LlamaWeights:
    """The model's weights, query and key rows in Hugging Face's order."""
    return random_weights(FAMILIES[name], seed=sorted(FAMILIES).index(name))


def config_json(config: ModelConfig) -> dict[str, object]:
    """What config.json says of a model."""
    described: dict[str, object] = {
        "model_type": config.architecture,
        "architectures": [MODEL_CLASSES.get(config.architecture, f"{config.architecture.title()}ForCausalLM")],
        "vocab_size": config.vocab_size,
        "hidden_size": config.hidden_size,
        "intermediate_size": config.ffn_size,
        "num_hidden_layers": config.num_layers,
        "num_attention_heads": config.num_heads,
        "num_key_value_heads": config.num_kv_heads,
        "head_dim": config.head_dim,
        "max_position_embeddings": 512,
        "rms_norm_eps": config.norm_eps,
        "rope_theta": config.rope_base,
        "rope_scaling": _scaling_json(config),
        "tie_word_embeddings": config.tied_embeddings,
        "hidden_act": "silu",
        "bos_token_id": 1,
        "eos_token_id": [0, 2],
    }
    if config.architecture == "mistral":
        described["sliding_window"] = config.context_length
    return described


def _scaling_json(config: ModelConfig) -> dict[str, object] | None:
    match config.rope_scaling:
        case LinearRope(factor):
            return {"type": "linear", "factor": factor}
        case Llama3Rope() as scaling:
            return {
                "rope_type": "llama3",
                "factor": scaling.factor,
                "low_freq_factor": scaling.low_freq_factor,
                "high_freq_factor": scaling.high_freq_factor,
                "original_max_position_embeddings": scaling.original_context_length,
            }
        case _:
            return None


def tokenizer_json(spec: TokenizerSpec) -> dict[str, object]:
    """tokenizer.json of a byte-level BPE tokenizer."""
    return {
        "version": "1.0",
        "added_tokens": [
            {
                "id": i,
                "content": spec.tokens[i],
                "single_word": False,
                "lstrip": False,
                "rstrip": False,
                "normalized": False,
                "special": True,
            }
            for i in sorted(spec.control_ids)
        ],
        "normalizer": None,
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [
                {"type": "Digits", "individual_digits": True},
                {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
            ],
        },
        "post_processor": None,
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": {
            "type": "BPE",
            "vocab": {token: i for i, token in enumerate(spec.tokens)},
            "merges": [merge.split(" ") for merge in spec.merges],
        },
    }


def write_folder(
    path: Path,
    weights: LlamaWeights,
    *,
    kind: str = "F32",
    num_shards: int = 1,
    changes: dict[str, object] | None = None,
) -> None:
    """Writes a Hugging Face folder; `changes` replaces keys of config.json."""
    path.mkdir(parents=True, exist_ok=True)
    _write_json(path / "config.json", config_json(weights.config) | (changes or {}))
    spec = tiny_tokenizer_spec()
    _write_json(path / "tokenizer.json", tokenizer_json(spec))
    names = {"bos_token": {"content": "<|im_start|>"}, "eos_token": "<|im_end|>", "chat_template": CHAT_TEMPLATE}
    _write_json(path / "tokenizer_config.json", names)
    tensors = list(_hugging_face_tensors(weights).items())
    if num_shards == 1:
        _write_safetensors(path / "model.safetensors", dict(tensors), kind)
        return
    shards = {f"model-{i + 1:05}-of-{num_shards:05}.safetensors": tensors[i::num_shards] for i in range(num_shards)}
    for name, part in shards.items():
        _write_safetensors(path / name, dict(part), kind)
    where = {tensor: name for name, part in shards.items() for tensor, _ in part}
    _write_json(path / "model.safetensors.index.json", {"metadata": {}, "weight_map": where})


def write_family_gguf(path: Path, weights: LlamaWeights, **options: object) -> None:
    """Writes the model as llama.cpp's converter does: Llama's query and key rows reordered, divisors as a tensor."""
    config = weights.config
    if config.architecture == "mistral":
        config = replace(config, architecture="llama")
    named = named_tensors(weights)
    if config.architecture == "llama":
        for layer in range(config.num_layers):
            for name in ("q", "k"):
                stored = gguf_name(name, layer)
                named[stored] = interleaved(named[stored], config.head_dim)
    metadata: dict[str, object] = {}
    if isinstance(config.rope_scaling, Llama3Rope):
        plain = rope_frequencies(config.head_dim, config.rope_base, None)
        scaled = rope_frequencies(config.head_dim, config.rope_base, config.rope_scaling)
        named["rope_freqs.weight"] = (plain / scaled).astype(np.float32)
        assert DividedRope(tuple(plain / scaled)).divisors[0] == 1.0
    if isinstance(config.rope_scaling, LinearRope):
        metadata = {"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": config.rope_scaling.factor}
    write_gguf(path, config, named, metadata=metadata, **options)


def interleaved(matrix: np.ndarray, head_dim: int) -> np.ndarray:
    """Rows for pairs (i, i + half) of a head reordered for pairs (2 i, 2 i + 1)."""
    num_inputs = matrix.shape[1]
    return matrix.reshape(-1, 2, head_dim // 2, num_inputs).swapaxes(1, 2).reshape(-1, num_inputs).copy()


def _hugging_face_tensors(weights: LlamaWeights) -> dict[str, np.ndarray]:
    named = {hugging_face_name("embedding"): weights.embedding_VD, hugging_face_name("norm"): weights.norm_D}
    if not weights.config.tied_embeddings:
        named[hugging_face_name("head")] = weights.lm_head_VD
    for index, layer in enumerate(weights.layers):
        named |= {hugging_face_name(name, index): array for name, array in layer.named().items()}
    return named


def _write_safetensors(path: Path, tensors: dict[str, np.ndarray], kind: str) -> None:
    """Written by hand: the library's writer for NumPy knows no bfloat16."""
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    data = bytearray()
    for name, array in tensors.items():
        start = len(data)
        data += _bytes(array, kind)
        header[name] = {"dtype": kind, "shape": list(array.shape), "data_offsets": [start, len(data)]}
    described = json.dumps(header).encode()
    path.write_bytes(len(described).to_bytes(8, "little") + described + data)


def _bytes(array: np.ndarray, kind: str) -> bytes:
    if kind == "BF16":  # rounded to nearest, ties to even
        bits = np.ascontiguousarray(array).view(np.uint32)
        return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype("<u2").tobytes()
    return array.astype("<f4" if kind == "F32" else "<f2").tobytes()


def _write_json(path: Path, value: object) -> None:
    path.write_text(json.dumps(value, ensure_ascii=False), "utf-8")


if __name__ == "__main__":
    for family in FAMILIES:
        write_folder(Path(sys.argv[1]) / family, family_weights(family))
