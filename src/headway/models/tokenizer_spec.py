"""The parts a tokenizer is built from, as a model file states them, checked but not yet assembled."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from headway.errors import BadModelFile

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6  # GGUF's token types

# Names that model makers give to the token that ends an answer. A file may list one of them as its end token and have
# the model write another, so all that exist as control tokens count.
END_NAMES = frozenset(
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

TokenizerKind = Literal["bpe", "sentencepiece", "json"]
Spelling = Literal["bytes", "sentencepiece"]
"""How tokens are written: in GPT-2's byte alphabet, or as text with U+2581 for a blank and <0x0A> for a byte."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenizerSpec:
    """Parts of a tokenizer; `tokens[id]` is a token's text as `spelling` writes it (control and user-defined: plain).

    `kind` says what splits a text, and from which parts: "bpe" from `merges`, "left right", best first, and the
    splitting rule `pre`; "sentencepiece" from `scores`, one for each token, and `add_space_prefix`; "json" from
    `source`, a tokenizer.json. `byte_ids` are tokens that stand for one byte. `eos_id` is the end token that the file
    names, `eos_ids` are all that end an answer. `origin` names the file in messages.
    """

    tokens: tuple[str, ...]
    merges: tuple[str, ...] = ()
    pre: str = ""
    kind: TokenizerKind = "bpe"
    spelling: Spelling = "bytes"
    scores: tuple[float, ...] = ()
    add_space_prefix: bool = False
    source: str = field(default="", repr=False)
    control_ids: frozenset[int] = frozenset()
    user_defined_ids: frozenset[int] = frozenset()
    byte_ids: frozenset[int] = frozenset()
    unknown_id: int | None = None
    bos_id: int | None = None
    eos_id: int | None = None
    eos_ids: frozenset[int] = frozenset()
    add_bos: bool = False
    origin: str = field(default="tokenizer", compare=False)


def spec_from_gguf(path: Path, meta: dict[str, Any]) -> TokenizerSpec:
    """The tokenizer of a GGUF file's metadata.

    Raises BadModelFile for a kind that is neither byte-level BPE nor SentencePiece's BPE, and for lists that are
    missing, of other lengths, or name tokens that do not exist.
    """
    model = meta.get("tokenizer.ggml.model")
    if model not in ("gpt2", "llama"):
        raise BadModelFile(
            f"{path}: tokenizer model {repr(model)[:60]} is not supported; "
            "supported: 'gpt2' (BPE), 'llama' (SentencePiece)"
        )
    tokens = tuple(_strings(path, meta, "tokenizer.ggml.tokens"))
    if len(set(tokens)) != len(tokens):
        raise BadModelFile(f"{path}: tokenizer.ggml.tokens holds a token twice")
    types = _per_token(path, meta, "tokenizer.ggml.token_type", [NORMAL] * len(tokens))
    of_type = {kind: frozenset(i for i, mine in enumerate(types) if mine == kind and tokens[i]) for kind in set(types)}
    control_ids = of_type.get(CONTROL, frozenset())
    eos_id = _token_id(path, meta, "eos", tokens)
    named = (eos_id, _token_id(path, meta, "eot", tokens), _token_id(path, meta, "eom", tokens))
    pre = str(meta.get("tokenizer.ggml.pre", "default"))[:60]
    rules = _sentencepiece(path, meta) if model == "llama" else _bpe(path, meta, pre)
    return TokenizerSpec(
        origin=str(path),
        tokens=tokens,
        control_ids=control_ids,
        user_defined_ids=of_type.get(USER_DEFINED, frozenset()),
        byte_ids=of_type.get(BYTE, frozenset()),
        unknown_id=min(of_type.get(UNKNOWN, frozenset()), default=None),
        bos_id=_token_id(path, meta, "bos", tokens),
        eos_id=eos_id,
        eos_ids=frozenset(i for i in named if i is not None) | end_ids(tokens, control_ids),
        **rules,
    )


def end_ids(tokens: tuple[str, ...], control_ids: frozenset[int]) -> frozenset[int]:
    """Control tokens that end an answer by their name."""
    return frozenset(i for i in control_ids if tokens[i] in END_NAMES)


def _bpe(path: Path, meta: dict[str, Any], pre: str) -> dict[str, Any]:
    return {
        "kind": "bpe",
        "merges": tuple(_strings(path, meta, "tokenizer.ggml.merges")),
        "pre": pre,
        "add_bos": bool(meta.get("tokenizer.ggml.add_bos_token", pre in _BOS_BY_DEFAULT)),
    }


def _sentencepiece(path: Path, meta: dict[str, Any]) -> dict[str, Any]:
    scores = _per_token(path, meta, "tokenizer.ggml.scores", None)
    if not all(isinstance(score, float) for score in scores):
        raise BadModelFile(f"{path}: tokenizer.ggml.scores holds something that is not a real number")
    return {
        "kind": "sentencepiece",
        "spelling": "sentencepiece",
        "scores": tuple(scores),
        "add_space_prefix": bool(meta.get("tokenizer.ggml.add_space_prefix", True)),
        "add_bos": bool(meta.get("tokenizer.ggml.add_bos_token", True)),
    }


def _strings(path: Path, meta: dict[str, Any], key: str) -> list[str]:
    value = meta.get(key)
    if not isinstance(value, list) or not value or not isinstance(value[0], str):
        raise BadModelFile(f"{path}: metadata has no list of texts {key}")
    return value


def _per_token(path: Path, meta: dict[str, Any], key: str, default: list[int] | None) -> list[Any]:
    value = meta.get(key, default)
    num_tokens = len(meta["tokenizer.ggml.tokens"])
    if not isinstance(value, list) or len(value) != num_tokens:
        raise BadModelFile(f"{path}: {key} does not give one entry for each of {num_tokens} tokens")
    return value


def _token_id(path: Path, meta: dict[str, Any], name: str, tokens: tuple[str, ...]) -> int | None:
    key = f"tokenizer.ggml.{name}_token_id"
    value = meta.get(key)
    if value is None:
        return None
    if not isinstance(value, int) or not 0 <= value < len(tokens):
        raise BadModelFile(f"{path}: {key} is {repr(value)[:60]}, token ids are 0 to {len(tokens) - 1}")
    return value
