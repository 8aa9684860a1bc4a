"""Which tensors a model is made of, by our own short names, with their shapes; and what files call them.

Short names are those that executors use: `embedding`, `norm`, `head`, and inside a layer `attn_norm`, `q`, `k`, ....
A matrix has one row per output.
"""

from __future__ import annotations

from headway.models.config import ModelConfig

Shapes = dict[str, tuple[int, ...]]

OUTSIDE = -1
"""The layer of tensors that belong to none."""

_GGUF = {
    "embedding": "token_embd.weight",
    "norm": "output_norm.weight",
    "head": "output.weight",
    "attn_norm": "attn_norm.weight",
    "q": "attn_q.weight",
    "k": "attn_k.weight",
    "v": "attn_v.weight",
    "q_bias": "attn_q.bias",
    "k_bias": "attn_k.bias",
    "v_bias": "attn_v.bias",
    "q_norm": "attn_q_norm.weight",
    "k_norm": "attn_k_norm.weight",
    "o": "attn_output.weight",
    "ffn_norm": "ffn_norm.weight",
    "gate": "ffn_gate.weight",
    "up": "ffn_up.weight",
    "down": "ffn_down.weight",
}
_HUGGING_FACE = {
    "embedding": "model.embed_tokens.weight",
    "norm": "model.norm.weight",
    "head": "lm_head.weight",
    "attn_norm": "input_layernorm.weight",
    "q": "self_attn.q_proj.weight",
    "k": "self_attn.k_proj.weight",
    "v": "self_attn.v_proj.weight",
    "q_bias": "self_attn.q_proj.bias",
    "k_bias": "self_attn.k_proj.bias",
    "v_bias": "self_attn.v_proj.bias",
    "q_norm": "self_attn.q_norm.weight",
    "k_norm": "self_attn.k_norm.weight",
    "o": "self_attn.o_proj.weight",
    "ffn_norm": "post_attention_layernorm.weight",
    "gate": "mlp.gate_proj.weight",
    "up": "mlp.up_proj.weight",
    "down": "mlp.down_proj.weight",
}


def outer_shapes(config: ModelConfig) -> Shapes:
    """Tensors outside the layers; a tied head is none of its own."""
    shapes: Shapes = {"norm": (config.hidden_size,), "embedding": (config.vocab_size, config.hidden_size)}
    if not config.tied_embeddings:
        shapes["head"] = (config.vocab_size, config.hidden_size)
    return shapes


def layer_shapes(config: ModelConfig) -> Shapes:
    """Tensors of one layer, a norm before the matrices that read what it normalised."""
    hidden, query, kv, ffn = config.hidden_size, config.query_size, config.kv_size, config.ffn_size
    shapes: Shapes = {
        "attn_norm": (hidden,),
        "q": (query, hidden),
        "k": (kv, hidden),
        "v": (kv, hidden),
        "o": (hidden, query),
        "ffn_norm": (hidden,),
        "gate": (ffn, hidden),
        "up": (ffn, hidden),
        "down": (hidden, ffn),
    }
    if config.qkv_bias:
        shapes |= {"q_bias": (query,), "k_bias": (kv,), "v_bias": (kv,)}
    if config.qk_norm:
        shapes |= {"q_norm": (config.head_dim,), "k_norm": (config.head_dim,)}
    return shapes


def gguf_name(name: str, layer: int = OUTSIDE) -> str:
    """What GGUF files call a tensor."""
    return _GGUF[name] if layer == OUTSIDE else f"blk.{layer}.{_GGUF[name]}"


def hugging_face_name(name: str, layer: int = OUTSIDE) -> str:
    """What checkpoints of Hugging Face call a tensor."""
    return _HUGGING_FACE[name] if layer == OUTSIDE else f"model.layers.{layer}.{_HUGGING_FACE[name]}"


def all_tensors(config: ModelConfig) -> dict[tuple[str, int], tuple[int, ...]]:
    """Every tensor of the model, by short name and layer, with its shape."""
    tensors = {(name, OUTSIDE): shape for name, shape in outer_shapes(config).items()}
    for layer in range(config.num_layers):
        tensors |= {(name, layer): shape for name, shape in layer_shapes(config).items()}
    return tensors
