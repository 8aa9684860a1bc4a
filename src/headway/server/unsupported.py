"""Fields that we know and do not support yet: refused by name, so that nobody believes they were honoured."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headway.server.faults import Unsupported

# Each field with the values that ask for nothing. None, false and empty ones always ask for nothing.
_HARMLESS: dict[str, tuple[Any, ...]] = {
    "audio": (),
    "chat_template": (),
    "documents": (),
    "function_call": ("none", "auto"),
    "functions": (),
    "guided_choice": (),
    "guided_grammar": (),
    "guided_json": (),
    "guided_regex": (),
    "length_penalty": (1, 1.0),
    "logits_processors": (),
    "modalities": (["text"],),
    "mm_processor_kwargs": (),
    "prediction": (),
    "prompt_embeds": (),
    "response_format": ({"type": "text"},),
    "structured_outputs": (),
    "suffix": (),
    "tool_choice": ("none", "auto"),
    "tools": (),
    "truncate_prompt_tokens": (),
    "use_beam_search": (),
    "web_search_options": (),
}


def refuse_unsupported(extra: Mapping[str, Any]) -> None:
    """Raise `Unsupported` for the first field that asks for something this server cannot do."""
    for name, harmless in _HARMLESS.items():
        value = extra.get(name)
        if _asks_for_something(value) and value not in harmless:
            raise Unsupported(f"{name} is not supported by this server; leave it out", param=name)


def _asks_for_something(value: object) -> bool:
    # An empty object stands for defaults in `web_search_options` and the like, so it does ask.
    return value is not None and value is not False and value not in ("", [])
