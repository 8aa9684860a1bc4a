"""A conversation as token ids, in which only the template can write control tokens.

Templates paste what users say between control tokens, so a user who types `<|im_end|>` could end his turn and open a
system turn. The cure used here works whatever the template does with the text (trims, joins, slices, upper-cases it):

1. Before rendering, a *guard*, one character that occurs nowhere in the conversation or the template, is put into every
   place of the messages where the text of a control token stands, or could be completed by what surrounds it.
2. The rendered text is split at control tokens. A guarded one is no longer found.
3. Guards are removed from the parts between, and each part is encoded as ordinary text.

The ordinary tokenizer splits at control tokens first too, so the ids are exactly those of the plain rendering, with no
seams of our own; and messages that hold nothing of the kind are not touched at all.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise

from headway.errors import InvalidRequest
from headway.models.chat_template import ChatTemplate, Json, Message
from headway.models.tokenizer import Tokenizer

_PRIVATE_USE = range(0xE000, 0xF900)


class ChatPrompts:
    """Makes prompts for one tokenizer and template."""

    def __init__(self, tokenizer: Tokenizer, template: ChatTemplate) -> None:
        self.tokenizer, self.template = tokenizer, template
        self._marker = _Marker(tokenizer.control_texts)

    def encode(self, messages: Sequence[Message], /, **variables: Json) -> list[int]:
        """Ids of the rendered conversation; control ids come from the template alone. Raises InvalidRequest.

        With `continue_final_message` they end where the last message's text ends, its blanks kept, so that the model
        goes on with it (vLLM's and Hugging Face's option of that name).
        """
        if variables.pop("continue_final_message", False):
            return self._encode_open(messages, {**variables, "add_generation_prompt": False})
        texts = [text for value in (messages, variables) for text in _texts(value)]
        if not any(map(self._marker.touches, texts)):
            return self.tokenizer.encode_template(self.template.render(messages, **variables))
        guard = _unused_char([self.template.source, *self.tokenizer.control_texts, *texts])
        guarded = self._marker.mark(list(messages), guard)
        rendered = self.template.render(guarded, **self._marker.mark(variables, guard))
        return self.tokenizer.encode_template(rendered, guard)

    def _encode_open(self, messages: Sequence[Message], variables: dict[str, Json]) -> list[int]:
        if not messages or not isinstance(text := messages[-1].get("content"), str) or not text:
            raise InvalidRequest(
                "continue_final_message needs a last message with text to go on with", param="continue_final_message"
            )
        used = [text for value in (messages, variables) for text in _texts(value)]
        guard = _unused_char([self.template.source, *self.tokenizer.control_texts, *used])
        # Two guards in a row, as marking never leaves them, show where the text ended up; searching for the text itself
        # could find it in what the template writes behind it.
        *before, last = self._marker.mark(list(messages), guard)
        last["content"] += guard * 2
        rendered = self.template.render([*before, last], **self._marker.mark(variables, guard))
        head, found, _ = rendered.rpartition(guard * 2)
        if not found:
            raise InvalidRequest(
                "this model's chat template does not show the end of the last message, so it cannot be continued",
                param="continue_final_message",
            )
        return self.tokenizer.encode_template(head, guard)


class _Marker:
    """Finds and breaks the texts of control tokens in values that users gave."""

    def __init__(self, control_texts: Sequence[str]) -> None:
        # A look-ahead, so that texts which overlap are all found. Case is ignored, for templates that change it.
        whole = "|".join(map(re.escape, control_texts)) or r"(?!)"
        self._whole = re.compile(f"(?=(?:{whole}))(.)", re.DOTALL | re.IGNORECASE)
        # What may stand at an edge of a text and become a control token together with its surroundings.
        self._heads = tuple({text[-n:].lower() for text in control_texts for n in range(1, len(text))})
        self._tails = tuple({text[:n].lower() for text in control_texts for n in range(1, len(text))})

    def touches(self, text: str) -> bool:
        """Whether the text holds a control token's text, or a piece of one at its edge."""
        return bool(self._whole.search(text)) or self._begins(text) or self._ends(text)

    def mark(self, value: Json, guard: str) -> Json:
        """A copy of the value in which every text is guarded."""
        match value:
            case str():
                return self._mark_text(value, guard)
            case dict():
                return {self.mark(key, guard): self.mark(inner, guard) for key, inner in value.items()}
            case list() | tuple():
                return [self.mark(inner, guard) for inner in value]
            case _:
                return value

    def _mark_text(self, text: str, guard: str) -> str:
        places = {found.start(1) + 1 for found in self._whole.finditer(text)}
        start, stop = len(text) - len(text.lstrip()), len(text.rstrip())
        # Pieces at the edges are broken up wholly: one may contain another.
        head = max((len(piece) for piece in self._heads if text[start:].lower().startswith(piece)), default=0)
        tail = max((len(piece) for piece in self._tails if text[:stop].lower().endswith(piece)), default=0)
        places.update(range(start, start + head), range(stop - tail + 1, stop + 1))
        cuts = [0, *sorted(places), len(text)]
        return guard.join(text[left:right] for left, right in pairwise(cuts))

    def _begins(self, text: str) -> bool:
        return text.lstrip()[:200].lower().startswith(self._heads)

    def _ends(self, text: str) -> bool:
        return text.rstrip()[-200:].lower().endswith(self._tails)


def _texts(value: Json) -> Iterator[str]:
    """Every text inside a JSON-like value, keys included."""
    match value:
        case str():
            yield value
        case dict():
            for key, inner in value.items():
                yield from _texts(key)
                yield from _texts(inner)
        case list() | tuple():
            for inner in value:
                yield from _texts(inner)


def _unused_char(texts: Sequence[str]) -> str:
    for code in _PRIVATE_USE:
        if not any(chr(code) in text for text in texts):
            return chr(code)
    raise InvalidRequest("messages use every private-use character and the text of a control token", param="messages")
