"""Model cards: the shape of a model, which is all that its speed depends on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from headway.core import json_value, unreadable
from headway.errors import BadSetting


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCard:
    """A dense decoder's shape. Weights and KV take `weight_bytes` and `kv_bytes` per number (2: 16 bits)."""

    name: str
    num_layers: int
    hidden: int
    num_heads: int
    num_kv_heads: int
    ffn: int
    vocab: int
    head_dim: int
    context: int = 8192
    num_mlp_matrices: int = 3
    is_tied: bool = False
    weight_bytes: float = 2.0
    kv_bytes: float = 2.0

    @property
    def layer_params(self) -> int:
        """Weights of one layer: Q, K, V and output projections, and two (plain) or three (gated) MLP matrices."""
        attention = self.hidden * self.head_dim * 2 * (self.num_heads + self.num_kv_heads)
        return attention + self.num_mlp_matrices * self.hidden * self.ffn

    @property
    def head_params(self) -> int:
        """Weights of the output head."""
        return self.vocab * self.hidden

    @property
    def num_params(self) -> int:
        """All weights, embeddings counted once where the head shares them; norms and biases left out."""
        return self.num_layers * self.layer_params + self.head_params * (1 if self.is_tied else 2)

    @property
    def weights_size(self) -> float:
        """Bytes of all weights."""
        return self.num_params * self.weight_bytes

    @property
    def token_kv_size(self) -> float:
        """Bytes of keys and values that one token keeps in all layers."""
        return 2 * self.num_layers * self.num_kv_heads * self.head_dim * self.kv_bytes


def _card(
    name: str,
    shape: tuple[int, int, int, int, int, int],
    *,
    head_dim: int = 0,
    context: int = 8192,
    num_mlp_matrices: int = 3,
    is_tied: bool = False,
) -> ModelCard:
    num_layers, hidden, num_heads, num_kv_heads, ffn, vocab = shape
    return ModelCard(
        name=name,
        num_layers=num_layers,
        hidden=hidden,
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        ffn=ffn,
        vocab=vocab,
        head_dim=head_dim or hidden // num_heads,
        context=context,
        num_mlp_matrices=num_mlp_matrices,
        is_tied=is_tied,
    )


_CARDS = (
    # name, (layers, hidden, query heads, KV heads, FFN, vocabulary)
    _card("OPT-13B", (40, 5120, 40, 40, 20480, 50272), num_mlp_matrices=2, is_tied=True, context=2048),
    _card("OPT-30B", (48, 7168, 56, 56, 28672, 50272), num_mlp_matrices=2, is_tied=True, context=2048),
    _card("OPT-66B", (64, 9216, 72, 72, 36864, 50272), num_mlp_matrices=2, is_tied=True, context=2048),
    _card("OPT-175B", (96, 12288, 96, 96, 49152, 50272), num_mlp_matrices=2, is_tied=True, context=2048),
    _card("GPT-13B", (40, 5120, 40, 40, 20480, 51200), num_mlp_matrices=2, is_tied=True, context=2048),
    _card("GPT-101B", (80, 10240, 80, 80, 40960, 51200), num_mlp_matrices=2, is_tied=True, context=2048),
    _card("GPT-175B", (96, 12288, 96, 96, 49152, 51200), num_mlp_matrices=2, is_tied=True, context=2048),
    _card("Llama-2-7B", (32, 4096, 32, 32, 11008, 32000), context=4096),
    _card("Llama-2-13B", (40, 5120, 40, 40, 13824, 32000), context=4096),
    _card("Llama-2-70B", (80, 8192, 64, 8, 28672, 32000), context=4096),
    _card("Llama-33B", (60, 6656, 52, 52, 17920, 32000), context=2048),
    _card("Llama-3-8B", (32, 4096, 32, 8, 14336, 128256)),
    _card("Llama-3.1-8B", (32, 4096, 32, 8, 14336, 128256), context=131072),
    _card("Llama-3-70B", (80, 8192, 64, 8, 28672, 128256)),
    _card("Llama-3.1-70B", (80, 8192, 64, 8, 28672, 128256), context=131072),
    _card("Mistral-7B", (32, 4096, 32, 8, 14336, 32000), context=32768),
    _card("CodeLlama-34B", (48, 8192, 64, 8, 22016, 32000), context=16384),
    _card("Yi-34B", (60, 7168, 56, 8, 20480, 64000), context=200000),
    _card("Falcon-180B", (80, 14848, 232, 8, 59392, 65024), head_dim=64, num_mlp_matrices=2, context=4096),
    _card("Qwen3-8B", (36, 4096, 32, 8, 12288, 151936), head_dim=128, context=40960),
    _card("Qwen3-14B", (40, 5120, 40, 8, 17408, 151936), head_dim=128, context=40960),
    _card("Qwen3-32B", (64, 5120, 64, 8, 25600, 151936), head_dim=128, context=40960),
    _card("SmolLM2-135M", (30, 576, 9, 3, 1536, 49152), is_tied=True, context=8192),
)

MODEL_CARDS: Mapping[str, ModelCard] = {card.name: card for card in _CARDS}


def model_card(name: str) -> ModelCard:
    """A card by name, or read from a config.json (or the folder that has one).

    Case and an owner before a slash do not matter, nor do endings of variants (`-Instruct`, `-hf`).
    Raises `BadSetting` naming the known cards.
    """
    path = Path(name)
    if path.is_dir():
        path = path / "config.json"
    if path.suffix == ".json":
        return card_from_config(path)
    wanted = _plain(name)
    for card in _CARDS:
        if _plain(card.name) == wanted:
            return card
    raise BadSetting(f"no model card {name!r}; known: {', '.join(MODEL_CARDS)}, or the path of a config.json")


def card_from_config(path: Path) -> ModelCard:
    """The card of a Hugging Face config.json of a dense decoder. Raises `BadSetting` for any other content."""
    try:
        config = json_value(path.read_text(encoding="utf-8"), str(path))
    except (OSError, UnicodeDecodeError) as error:
        raise unreadable(path, error) from error
    if not isinstance(config, dict):
        raise BadSetting(f"{path} must be a JSON object, not {type(config).__name__}")
    if any(config.get(key) for key in ("num_experts", "num_local_experts", "n_routed_experts")):
        raise BadSetting(f"{path} describes a mixture of experts; only dense decoders can be simulated")
    hidden = _count(config, path, "hidden_size", "n_embd", "d_model")
    num_heads = _count(config, path, "num_attention_heads", "n_head")
    kind = str(config.get("model_type", ""))
    return ModelCard(
        name=str(config.get("_name_or_path") or path.parent.name or kind),
        num_layers=_count(config, path, "num_hidden_layers", "n_layer"),
        hidden=hidden,
        num_heads=num_heads,
        num_kv_heads=_count(config, path, "num_key_value_heads", "num_kv_heads", default=num_heads),
        ffn=_count(config, path, "intermediate_size", "ffn_dim", "n_inner", default=4 * hidden),
        vocab=_count(config, path, "vocab_size"),
        head_dim=_count(config, path, "head_dim", default=hidden // num_heads),
        context=_count(config, path, "max_position_embeddings", "n_positions", default=8192),
        num_mlp_matrices=2 if kind in _PLAIN_MLP else 3,
        is_tied=config.get("tie_word_embeddings") is True or (kind in _PLAIN_MLP and kind != "falcon"),
    )


_PLAIN_MLP = ("opt", "gpt2", "gpt_neox", "gptj", "falcon", "phi", "bloom", "starcoder2", "mpt")
"""Model types whose MLP has two matrices instead of three."""

_VARIANTS = ("-instruct", "-chat", "-base", "-hf", "-it", "-v0.1", "-v0.2", "-v0.3")


def _plain(name: str) -> str:
    plain = name.strip().rsplit("/", 1)[-1].lower().replace("_", "-").removeprefix("meta-")
    while (shorter := _without_variant(plain)) != plain:
        plain = shorter
    return plain


def _without_variant(name: str) -> str:
    for ending in _VARIANTS:
        name = name.removesuffix(ending)
    return name


def _count(config: Mapping[str, object], path: Path, *keys: str, default: int | None = None) -> int:
    value = next((config[key] for key in keys if config.get(key) is not None), default)
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise BadSetting(f"{path}: {keys[0]} is {value!r}; it must be a whole number of at least 1")
    return value
