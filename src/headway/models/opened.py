"""A model opened: file, tokenizer and chat prompts; no weights loaded yet."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from pathlib import Path

from headway.models.catalogue import CATALOGUE, DEFAULT_MODEL, resolve_model
from headway.models.chat_prompt import ChatPrompts
from headway.models.chat_template import ChatTemplate
from headway.models.gguf_file import GgufFile
from headway.models.gguf_parts import whole_name
from headway.models.hf_folder import HfFolder
from headway.models.model_file import ModelFile
from headway.models.tokenizer import Tokenizer
from headway.models.tokenizer_spec import TokenizerSpec

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class OpenedModel:
    """What is known of a model before its weights are read. `name` is what clients call it by default."""

    name: str
    file: ModelFile
    tokenizer: Tokenizer
    prompts: ChatPrompts


def open_model(spec: str | None = None) -> OpenedModel:
    """Resolve a file, folder or catalogue name (None: the default model, fetched once) and read its metadata.

    Raises `BadModelFile` when it cannot be had or is not what it says.
    """
    path = resolve_model(spec)
    file: ModelFile = HfFolder.open(path) if path.is_dir() else GgufFile.open(path)
    tokenizer = checked_tokenizer(file.tokenizer_spec)
    template = ChatTemplate(file.chat_template, bos_text=tokenizer.bos_text, eos_text=tokenizer.eos_text)
    return OpenedModel(_name(spec, path), file, tokenizer, ChatPrompts(tokenizer, template))


def checked_tokenizer(spec: TokenizerSpec) -> Tokenizer:
    """The tokenizer of these parts, tried out on ordinary texts.

    Where they do not come back, and the file leaves open how its tokens are spelled, the other spelling is tried; where
    that does not help either, a warning is logged.
    """
    tokenizer = Tokenizer(spec)
    problem = tokenizer.problem()
    if problem and spec.kind == "json":
        other = Tokenizer(replace(spec, spelling="bytes" if spec.spelling == "sentencepiece" else "sentencepiece"))
        if other.problem() is None:
            return other
    if problem:
        logger.warning(problem)
    return tokenizer


def _name(spec: str | None, path: Path) -> str:
    """The catalogue's name, else the file's without its ending: what is inside files is often no name at all."""
    if spec is None:
        return DEFAULT_MODEL
    of_path = path.resolve().name if path.is_dir() else whole_name(path)
    return next((name for name in CATALOGUE if name.lower() == spec.lower()), of_path)
