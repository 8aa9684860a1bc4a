"""A tiny Llama-type model with random weights and a byte-level tokenizer, as a GGUF file, for tests."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np

from headway.models import LlamaWeights, ModelConfig, TokenizerSpec, random_weights
from headway.models.layout import gguf_name
from headway.models.tokenizer import byte_alphabet
from headway.models.tokenizer_spec import CONTROL, NORMAL

CHAT_TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
CONTROL_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
_MERGES = ("Ġ t", "h e", "Ġt he", "i n", "e r", "Ġ a", "o n", "r e", "Ġ s", "e n", "l l", "ll o")


def tiny_tokenizer_spec() -> TokenizerSpec:
    """Three control tokens, the 256 bytes, and a dozen merges: every text round-trips."""
    merged = tuple(merge.replace(" ", "") for merge in _MERGES)
    return TokenizerSpec(
        tokens=(*CONTROL_TOKENS, *byte_alphabet(), *merged),
        merges=_MERGES,
        pre="smollm",
        control_ids=frozenset({0, 1, 2}),
        bos_id=1,
        eos_id=2,
        eos_ids=frozenset({0, 2}),
    )


def tiny_config(**changes: object) -> ModelConfig:
    """Two layers, four query heads on two KV heads of 16, hidden 64: a step takes well under a millisecond."""
    shape: dict[str, object] = {
        "name": "tiny",
        "architecture": "llama",
        "num_layers": 2,
        "hidden_size": 64,
        "num_heads": 4,
        "num_kv_heads": 2,
        "head_dim": 16,
        "ffn_size": 96,
        "vocab_size": len(tiny_tokenizer_spec().tokens),
        "context_length": 512,
        "tied_embeddings": True,
    }
    return ModelConfig(**(shape | changes))


def write_tiny_gguf(
    path: Path,
    *,
    config: ModelConfig | None = None,
    seed: int = 0,
    kind: str = "F32",
    metadata: dict[str, object] | None = None,
) -> LlamaWeights:
    """Writes the model of `seed` to `path`, matrices stored as `kind`, and returns the float32 weights before that.

    `metadata` adds or replaces texts, whole numbers and booleans; a value of None leaves a key out.
    """
    weights = random_weights(config or tiny_config(), seed)
    write_gguf(path, weights.config, named_tensors(weights), kind=kind, metadata=metadata)
    return weights


def write_gguf(
    path: Path,
    config: ModelConfig,
    tensors: dict[str, np.ndarray],
    *,
    kind: str = "F32",
    metadata: dict[str, object] | None = None,
    split_max_tensors: int = 0,
) -> None:
    """Writes tensors under their names with the tiny tokenizer; into parts of so many tensors where that is not 0."""
    writer = gguf.GGUFWriter(path, config.architecture, split_max_tensors=split_max_tensors)
    write_metadata(writer, config, metadata)
    for name, array in tensors.items():
        _add_tensor(writer, name, array, gguf.GGMLQuantizationType[kind if array.ndim == 2 else "F32"])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def write_metadata(writer: gguf.GGUFWriter, config: ModelConfig, changes: dict[str, object] | None = None) -> None:
    """Gives a writer the config and the tiny tokenizer."""
    for key, value in (_metadata(config) | (changes or {})).items():
        _add(writer, key, value)


def named_tensors(weights: LlamaWeights) -> dict[str, np.ndarray]:
    """The arrays under GGUF's names; a tied head is left out."""
    named = {"token_embd.weight": weights.embedding_VD, "output_norm.weight": weights.norm_D}
    if not weights.config.tied_embeddings:
        named["output.weight"] = weights.lm_head_VD
    for index, layer in enumerate(weights.layers):
        named |= {gguf_name(name, index): array for name, array in layer.named().items()}
    return named


def _metadata(config: ModelConfig) -> dict[str, object]:
    spec, arch = tiny_tokenizer_spec(), config.architecture
    types = [CONTROL if i in spec.control_ids else NORMAL for i in range(len(spec.tokens))]
    return {
        "general.name": config.name,
        f"{arch}.block_count": config.num_layers,
        f"{arch}.context_length": config.context_length,
        f"{arch}.embedding_length": config.hidden_size,
        f"{arch}.feed_forward_length": config.ffn_size,
        f"{arch}.attention.head_count": config.num_heads,
        f"{arch}.attention.head_count_kv": config.num_kv_heads,
        f"{arch}.attention.key_length": config.head_dim,
        f"{arch}.attention.layer_norm_rms_epsilon": config.norm_eps,
        f"{arch}.rope.freq_base": config.rope_base,
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": spec.pre,
        "tokenizer.ggml.tokens": list(spec.tokens),
        "tokenizer.ggml.token_type": types,
        "tokenizer.ggml.merges": list(spec.merges),
        "tokenizer.ggml.bos_token_id": spec.bos_id,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.add_bos_token": False,
        "tokenizer.chat_template": CHAT_TEMPLATE,
    }


def _add(writer: gguf.GGUFWriter, key: str, value: object) -> None:
    match value:
        case None:
            return
        case bool():
            writer.add_bool(key, value)
        case int():
            writer.add_uint32(key, value)
        case float():
            writer.add_float32(key, value)
        case str():
            writer.add_string(key, value)
        case list():
            writer.add_array(key, value)
        case _:
            raise TypeError(f"{key}: {value!r}")


def _add_tensor(writer: gguf.GGUFWriter, name: str, array: np.ndarray, kind: gguf.GGMLQuantizationType) -> None:
    if kind in (gguf.GGMLQuantizationType.F32, gguf.GGMLQuantizationType.F16):
        writer.add_tensor(name, gguf.quants.quantize(array, kind))
        return
    writer.add_tensor(name, gguf.quants.quantize(array, kind), raw_dtype=kind)
