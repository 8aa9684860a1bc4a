"""A model opened: file, tokenizer and chat prompts; no weights loaded yet."""

from __future__ import annotations

from dataclasses import dataclass

from headway.models.catalogue import resolve_model
from headway.models.chat_prompt import ChatPrompts
from headway.models.chat_template import ChatTemplate
from headway.models.gguf_file import GgufFile
from headway.models.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class OpenedModel:
    """What is known of a model before its weights are read."""

    file: GgufFile
    tokenizer: Tokenizer
    prompts: ChatPrompts


def open_model(spec: str | None = None) -> OpenedModel:
    """Resolve a file, folder or catalogue name (None: the default model, fetched once) and read its metadata.

    Raises `BadModelFile` when it cannot be had or is not what it says.
    """
    file = GgufFile.open(resolve_model(spec))
    tokenizer = Tokenizer(file.tokenizer_spec)
    template = ChatTemplate(file.chat_template, bos_text=tokenizer.bos_text, eos_text=tokenizer.eos_text)
    return OpenedModel(file, tokenizer, ChatPrompts(tokenizer, template))
