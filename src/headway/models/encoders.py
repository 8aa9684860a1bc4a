"""From plain text to ids: one way for each kind of tokenizer. Control tokens are none of their business.

Ordinary text cannot become a control token, by construction: their texts are no part of the vocabularies built here.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import tokenizers
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers

from headway.errors import BadModelFile
from headway.models.tokenizer_spec import TokenizerSpec

Encode = Callable[[str], list[int]]

BLANK = "\u2581"
"""What SentencePiece writes for a blank."""

# A rule splits text into pieces that BPE never merges across. The expressions are those that models' makers publish;
# None means GPT-2's, which the library has built in.
_LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
PRE_TOKENIZERS: dict[str, str | None] = {
    "smollm": None,
    "gpt-2": None,
    "default": None,
    "llama-bpe": _LLAMA3,
    "qwen2": _LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}"),
}
_COMPOSED = frozenset({"qwen2"})  # rules whose models compose characters (NFC) before they split


@dataclass(frozen=True, slots=True)
class Encoders:
    """Text at the very start of a prompt, behind a BOS alone, and anywhere else: blanks are put before some of them."""

    first: Encode
    after_bos: Encode
    later: Encode


def make_encoders(spec: TokenizerSpec) -> Encoders:
    """The way from text to ids. Raises BadModelFile for parts that do not fit together."""
    match spec.kind:
        case "bpe":
            encode = _ids(spec, _bpe(spec))
            return Encoders(encode, encode, encode)
        case "sentencepiece":
            return _sentencepiece(spec)
        case "json":
            return _from_json(spec)


def _ids(spec: TokenizerSpec, backend: tokenizers.Tokenizer) -> Encode:
    def encode(text: str) -> list[int]:
        try:
            ids: list[int] = backend.encode(text, add_special_tokens=False).ids
        except BaseException as error:
            # A damaged tokenizer may make the library panic, which it tells by an exception outside of Exception.
            if isinstance(error, Exception) or type(error).__name__ == "PanicException":
                raise BadModelFile(
                    f"{spec.origin}: the tokenizer fails: {' '.join(str(error).split())[:200]}"
                ) from None
            raise
        return ids

    return encode


def _bpe(spec: TokenizerSpec) -> tokenizers.Tokenizer:
    vocab = {token: i for i, token in enumerate(spec.tokens) if i not in spec.control_ids}
    merges = [(left, right) for left, _, right in (merge.partition(" ") for merge in spec.merges)]
    try:
        model = models.BPE(vocab=vocab, merges=merges, ignore_merges=spec.pre == "llama-bpe")
    except Exception as error:  # noqa: BLE001 - the library raises nothing more specific
        raise BadModelFile(f"{spec.origin}: the tokenizer's merges do not fit its tokens: {error}") from None
    backend = tokenizers.Tokenizer(model)
    if spec.pre in _COMPOSED:
        backend.normalizer = normalizers.NFC()
    backend.pre_tokenizer = _pre_tokenizer(spec)
    backend.decoder = decoders.ByteLevel()
    backend.add_tokens([AddedToken(spec.tokens[i], normalized=False) for i in sorted(spec.user_defined_ids)])
    return backend


def _pre_tokenizer(spec: TokenizerSpec) -> pre_tokenizers.PreTokenizer:
    if (pre := spec.pre) not in PRE_TOKENIZERS:
        raise BadModelFile(
            f"{spec.origin}: pre-tokenizer {pre!r} is not supported, and another would give wrong tokens; "
            f"supported: {', '.join(PRE_TOKENIZERS)}"
        )
    pattern = PRE_TOKENIZERS[pre]
    steps: list[pre_tokenizers.PreTokenizer] = []
    if pre == "smollm":
        steps.append(pre_tokenizers.Digits(individual_digits=True))
    if pattern:
        steps.append(pre_tokenizers.Split(Regex(pattern), behavior="isolated"))
    steps.append(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=pattern is None))
    return pre_tokenizers.Sequence(steps)


def _sentencepiece(spec: TokenizerSpec) -> Encoders:
    """SentencePiece's BPE: of all neighbours, those whose union scores best are joined first (arXiv 1808.06226).

    A blank is put before the prompt's first text, where the file asks for it, and before no other piece.
    """
    hidden = spec.control_ids - {spec.unknown_id}
    user_defined = {i: spec.tokens[i].replace(" ", BLANK) for i in sorted(spec.user_defined_ids)}
    vocab = {user_defined.get(i, token): i for i, token in enumerate(spec.tokens) if i not in hidden}
    unknown = None if spec.unknown_id is None else spec.tokens[spec.unknown_id]
    merges = _merges_by_score(spec)
    try:
        model = models.BPE(vocab=vocab, merges=merges, unk_token=unknown, fuse_unk=True, byte_fallback=True)
    except Exception as error:  # noqa: BLE001 - the library raises nothing more specific
        raise BadModelFile(f"{spec.origin}: the tokenizer's tokens do not fit together: {error}") from None
    backend = tokenizers.Tokenizer(model)
    backend.add_tokens([AddedToken(text, normalized=False) for text in user_defined.values()])
    encode = _ids(spec, backend)
    later = partial(_blanks_encoded, encode, "")
    first = partial(_blanks_encoded, encode, BLANK) if spec.add_space_prefix else later
    return Encoders(first, first, later)


def _blanks_encoded(encode: Encode, prefix: str, text: str) -> list[int]:
    return encode(prefix + text.replace(" ", BLANK)) if text else []


def _merges_by_score(spec: TokenizerSpec) -> list[tuple[str, str]]:
    """Every way to make a token of two others, the best scored token first."""
    apart = spec.control_ids | spec.user_defined_ids | spec.byte_ids | {spec.unknown_id}
    joined = {token for i, token in enumerate(spec.tokens) if i not in apart}
    ranked = sorted((i for i in range(len(spec.tokens)) if i not in apart), key=lambda i: -spec.scores[i])
    return [
        (token[:cut], token[cut:])
        for token in (spec.tokens[i] for i in ranked)
        for cut in range(1, len(token))
        if token[:cut] in joined and token[cut:] in joined
    ]


def _from_json(spec: TokenizerSpec) -> Encoders:
    """The library reads its own format; prefixes are put where it would put them in the whole text."""
    first = _load(spec, json.loads(spec.source))
    parts = json.loads(spec.source)
    prefixing = [step for step in _pre_tokenizer_steps(parts) if step.get("prepend_scheme") == "first"]
    if not prefixing:
        return Encoders(first, first, first)
    for step in prefixing:
        step["prepend_scheme"] = "never"
    later = _load(spec, parts)
    return Encoders(first, later, later)


def _pre_tokenizer_steps(parts: dict[str, Any]) -> Sequence[dict[str, Any]]:
    """The pre-tokenizer, or those that a sequence holds."""
    part = parts.get("pre_tokenizer") or {"type": "Sequence"}
    return part.get("pretokenizers", []) if part.get("type") == "Sequence" else [part]


def _load(spec: TokenizerSpec, parts: dict[str, Any]) -> Encode:
    try:
        return _ids(spec, tokenizers.Tokenizer.from_str(json.dumps(parts)))
    except Exception as error:  # noqa: BLE001 - the library raises nothing more specific
        raise BadModelFile(f"{spec.origin} cannot be used: {' '.join(str(error).split())[:200]}") from None
