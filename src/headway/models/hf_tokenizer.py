"""The tokenizer and chat template of a Hugging Face folder.

tokenizer.json is left to the library that defines it; control tokens are taken out first, because here they are found
in what a chat template wrote and nowhere else.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import tokenizers

from headway.errors import BadModelFile
from headway.models.json_file import read_json, read_metadata
from headway.models.metadata import Metadata
from headway.models.tokenizer_spec import Spelling, TokenizerSpec, end_ids

_BYTE = re.compile(r"<0x[0-9A-F]{2}>")


def read_tokenizer(folder: Path, config: Metadata, vocab_size: int) -> TokenizerSpec:
    """The tokenizer of tokenizer.json, with what tokenizer_config.json and generation_config.json say of its tokens.

    Ids up to `vocab_size` that no token has, which many models pad their embeddings with, get names of their own.
    Raises BadModelFile for a kind of tokenizer that is not supported and for ids beyond `vocab_size`.
    """
    path = folder / "tokenizer.json"
    if not path.is_file():
        raise BadModelFile(f"{folder} holds no tokenizer.json; tokenizers in other files are not supported")
    parts = read_json(path)
    model, added = _parts(path, parts)
    tokens = _tokens(path, model["vocab"], added, vocab_size)
    control_ids = frozenset(entry["id"] for entry in added if entry.get("special"))
    settings = read_metadata(folder / "tokenizer_config.json")
    bos_id = _named(settings, "bos_token", tokens)
    if not settings.values:
        bos_id = min(_ids(config, "bos_token_id", vocab_size), default=None)
    eos_id = _named(settings, "eos_token", tokens)
    generation = read_metadata(folder / "generation_config.json")
    eos_ids = _ids(config, "eos_token_id", vocab_size) | _ids(generation, "eos_token_id", vocab_size)
    return TokenizerSpec(
        origin=str(path),
        tokens=tokens,
        kind="json",
        spelling=_spelling(parts),
        source=_without_control(parts, control_ids),
        control_ids=control_ids,
        user_defined_ids=frozenset(entry["id"] for entry in added) - control_ids,
        byte_ids=frozenset(
            i for i, token in enumerate(tokens) if model.get("byte_fallback") and _BYTE.fullmatch(token)
        ),
        bos_id=bos_id,
        eos_id=eos_id,
        eos_ids=frozenset(eos_ids) | ({eos_id} if eos_id is not None else set()) | end_ids(tokens, control_ids),
        add_bos=_adds_bos(path, settings, bos_id),
    )


def read_chat_template(folder: Path) -> str | None:
    """The template of chat_template.jinja, else of tokenizer_config.json: its only one, or the one named default."""
    path = folder / "chat_template.jinja"
    if path.is_file():
        try:
            return path.read_text("utf-8")
        except (OSError, ValueError) as error:
            raise BadModelFile(f"cannot read {path}: {error}") from None
    settings = read_metadata(folder / "tokenizer_config.json")
    named: Any = settings.values.get("chat_template")
    if isinstance(named, list):
        found = [entry.get("template") for entry in named if isinstance(entry, dict) and entry.get("name") == "default"]
        settings = Metadata(settings.origin, {"chat_template": found[0] if found else None})
    return settings.text("chat_template")


def _parts(path: Path, parts: dict[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The model and the added tokens, of the shape that the rest of this module relies on."""
    model, added = parts.get("model"), parts.get("added_tokens") or []
    if not isinstance(model, dict) or model.get("type", "BPE") != "BPE" or not isinstance(model.get("vocab"), dict):
        kind = model.get("type") if isinstance(model, dict) else model
        raise BadModelFile(f"{path}: tokenizer model {repr(kind)[:60]} is not supported; supported: 'BPE'")
    if not all(isinstance(i, int) for i in model["vocab"].values()) or not isinstance(added, list):
        raise BadModelFile(f"{path}: the vocabulary is damaged")
    for entry in added:
        if not (isinstance(entry, dict) and isinstance(entry.get("id"), int) and isinstance(entry.get("content"), str)):
            raise BadModelFile(f"{path}: added token {repr(entry)[:60]} has no id and content")
    return model, added


def _tokens(path: Path, vocab: dict[str, int], added: list[dict[str, Any]], vocab_size: int) -> tuple[str, ...]:
    by_id = {i: token for token, i in vocab.items()} | {entry["id"]: entry["content"] for entry in added}
    if by_id and not 0 <= min(by_id) <= max(by_id) < vocab_size:
        raise BadModelFile(
            f"{path}: token ids are {min(by_id)} to {max(by_id)}, but the model has embeddings for {vocab_size}"
        )
    return tuple(by_id.get(i, f"<unused {i}>") for i in range(vocab_size))


def _without_control(parts: dict[str, Any], control_ids: frozenset[int]) -> str:
    """The file's text without control tokens, and without all that cuts, pads or adds to what was encoded."""
    model = parts["model"]
    kept = {token: i for token, i in model["vocab"].items() if i not in control_ids or token == model.get("unk_token")}
    rest = [entry for entry in parts.get("added_tokens") or [] if entry["id"] not in control_ids]
    kept |= {entry["content"]: entry["id"] for entry in rest}  # else the library would number them anew
    off = {"truncation": None, "padding": None, "post_processor": None}
    return json.dumps({**parts, **off, "added_tokens": rest, "model": {**model, "vocab": kept}})


def _spelling(parts: dict[str, Any]) -> Spelling:
    """How tokens seem to be written; whether it is true is tried out on texts when the model is opened."""
    return (
        "bytes" if '"ByteLevel"' in json.dumps([parts.get("pre_tokenizer"), parts.get("decoder")]) else "sentencepiece"
    )


def _adds_bos(path: Path, settings: Metadata, bos_id: int | None) -> bool:
    """What the settings say, else what the file's own post-processor does."""
    if settings.values.get("add_bos_token") is not None:
        return settings.flag("add_bos_token")
    try:
        added: list[int] = tokenizers.Tokenizer.from_file(str(path)).encode("a").ids
    except Exception as error:  # noqa: BLE001 - the library raises nothing more specific
        raise BadModelFile(f"{path} cannot be used: {' '.join(str(error).split())[:200]}") from None
    return bos_id is not None and added[:1] == [bos_id]


def _named(settings: Metadata, key: str, tokens: tuple[str, ...]) -> int | None:
    """The id of a token that is named by its text, alone or in an object."""
    value: Any = settings.values.get(key)
    name = value.get("content") if isinstance(value, dict) else value
    if name is None:
        return None
    if name not in tokens:
        raise BadModelFile(f"{settings.origin}: {key} {repr(name)[:60]} is no token of tokenizer.json")
    return tokens.index(name)


def _ids(settings: Metadata, key: str, vocab_size: int) -> set[int]:
    """The ids under a key that holds none, one or several."""
    value: Any = settings.values.get(key)
    ids = value if isinstance(value, list) else [] if value is None else [value]
    if bad := [i for i in ids if not isinstance(i, int) or not 0 <= i < vocab_size]:
        raise BadModelFile(f"{settings.origin}: {key} is {repr(bad[0])[:60]}, token ids are 0 to {vocab_size - 1}")
    return set(ids)
