"""A model opened: file, tokenizer and chat prompts; no weights loaded yet."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from headway.models.catalogue import CATALOGUE, DEFAULT_MODEL, resolve_model
from headway.models.chat_prompt import ChatPrompts
from headway.models.chat_template import ChatTemplate
from headway.models.gguf_file import GgufFile
from headway.models.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class OpenedModel:
    """What is known of a model before its weights are read. `name` is what clients call it by default."""

    name: str
    file: GgufFile
    tokenizer: Tokenizer
    prompts: ChatPrompts


def open_model(spec: str | None = None) -> OpenedModel:
    """Resolve a file, folder or catalogue name (None: the default model, fetched once) and read its metadata.

    Raises `BadModelFile` when it cannot be had or is not what it says.
    """
    path = resolve_model(spec)
    file = GgufFile.open(path)
    tokenizer = Tokenizer(file.tokenizer_spec)
    template = ChatTemplate(file.chat_template, bos_text=tokenizer.bos_text, eos_text=tokenizer.eos_text)
    return OpenedModel(_name(spec, path), file, tokenizer, ChatPrompts(tokenizer, template))


def _name(spec: str | None, path: Path) -> str:
    """The catalogue's name, else the file's without its ending: what is inside files is often no name at all."""
    if spec is None:
        return DEFAULT_MODEL
    return next((name for name in CATALOGUE if name.lower() == spec.lower()), path.stem)
