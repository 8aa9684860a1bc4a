"""The parts a tokenizer is built from, as a model file states them, checked but not yet assembled."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headway.errors import BadModelFile

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6  # GGUF's token types

# Names that model makers give to the token that ends an answer. A file may list one of them as its end token and have
# the model write another, so all that exist as control tokens count.
_END_NAMES = frozenset(
    {
        "<|im_end|>",
        "<|endoftext|>",
        "<|eot_id|>",
        "<|eom_id|>",
        "<|end_of_text|>",
        "<|end|>",
        "<end_of_turn>",
        "</s>",
    }
)

_BOS_BY_DEFAULT = frozenset({"llama-bpe"})  # pre-tokenizers whose models want a BOS where the file does not say


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenizerSpec:
    """Parts of a byte-level BPE tokenizer.

    `tokens[id]` is a token's text in the byte alphabet of GPT-2 (control and user-defined tokens: their plain text);
    `merges` are "left right", best first. `origin` names the file in messages.
    """

    tokens: tuple[str, ...]
    merges: tuple[str, ...]
    pre: str
    control_ids: frozenset[int] = frozenset()
    user_defined_ids: frozenset[int] = frozenset()
    bos_id: int | None = None
    eos_ids: frozenset[int] = frozenset()
    add_bos: bool = False
    origin: str = field(default="tokenizer", compare=False)


def spec_from_gguf(path: Path, meta: dict[str, Any]) -> TokenizerSpec:
    """The tokenizer of a GGUF file's metadata.

    Raises BadModelFile for a kind that is not byte-level BPE, and for lists that are missing, of other lengths, or
    name tokens that do not exist.
    """
    model = meta.get("tokenizer.ggml.model")
    if model != "gpt2":
        raise BadModelFile(f"{path}: tokenizer model {repr(model)[:60]} is not supported; supported: 'gpt2' (BPE)")
    tokens = _strings(path, meta, "tokenizer.ggml.tokens")
    types = meta.get("tokenizer.ggml.token_type", [NORMAL] * len(tokens))
    if not isinstance(types, list) or len(types) != len(tokens):
        raise BadModelFile(f"{path}: tokenizer.ggml.token_type does not give one type for each of {len(tokens)} tokens")
    if len(set(tokens)) != len(tokens):
        raise BadModelFile(f"{path}: tokenizer.ggml.tokens holds a token twice")
    control_ids = frozenset(i for i, kind in enumerate(types) if kind == CONTROL and tokens[i])
    named = (_token_id(path, meta, f"tokenizer.ggml.{key}_token_id", len(tokens)) for key in ("eos", "eot", "eom"))
    pre = str(meta.get("tokenizer.ggml.pre", "default"))[:60]
    return TokenizerSpec(
        origin=str(path),
        tokens=tuple(tokens),
        merges=tuple(_strings(path, meta, "tokenizer.ggml.merges")),
        pre=pre,
        control_ids=control_ids,
        user_defined_ids=frozenset(i for i, kind in enumerate(types) if kind == USER_DEFINED and tokens[i]),
        bos_id=_token_id(path, meta, "tokenizer.ggml.bos_token_id", len(tokens)),
        eos_ids=frozenset(i for i in named if i is not None)
        | frozenset(i for i in control_ids if tokens[i] in _END_NAMES),
        add_bos=bool(meta.get("tokenizer.ggml.add_bos_token", pre in _BOS_BY_DEFAULT)),
    )


def _strings(path: Path, meta: dict[str, Any], key: str) -> list[str]:
    value = meta.get(key)
    if not isinstance(value, list) or not value or not isinstance(value[0], str):
        raise BadModelFile(f"{path}: metadata has no list of texts {key}")
    return value


def _token_id(path: Path, meta: dict[str, Any], key: str, num_tokens: int) -> int | None:
    value = meta.get(key)
    if value is None:
        return None
    if not isinstance(value, int) or not 0 <= value < num_tokens:
        raise BadModelFile(f"{path}: {key} is {repr(value)[:60]}, token ids are 0 to {num_tokens - 1}")
    return value
