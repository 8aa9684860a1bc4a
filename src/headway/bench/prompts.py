"""What is sent for each request of a workload: its prompt as text or as token ids."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from typing import Protocol

from headway.bench.target import Call
from headway.errors import BadSetting
from headway.workload import Encoder, PromptMaker, WorkItem


class CallMaker(Protocol):
    """Makes calls of items. The same item gives the same prompt; a maker with another salt gives another."""

    def call(self, item: WorkItem) -> Call:
        """What is sent for an item."""
        ...


class IdCalls:
    """Prompts as token ids: exact."""

    def __init__(self, prompts: PromptMaker) -> None:
        self._prompts = prompts

    @classmethod
    def made_up(cls, tokenizer: Encoder, salt: int) -> IdCalls:
        """Calls of common words in any order. Raises `BadSetting` for a tokenizer that knows too few."""
        return cls(PromptMaker(tokenizer, salt=salt))

    def call(self, item: WorkItem) -> Call:
        """A call of exactly `num_prompt` ids."""
        return _call(item, self._prompts.ids(item))


class TextCalls:
    """Prompts as text. `overhead` is what the target adds by itself: a BOS, a chat template."""

    def __init__(self, prompts: PromptMaker, *, overhead: int = 0) -> None:
        self._prompts, self._overhead = prompts, overhead

    def call(self, item: WorkItem) -> Call:
        """A call of `num_prompt` tokens, as the maker's tokenizer counts them."""
        return _call(item, self._prompts.text(item, overhead=self._overhead))


class WordEncoder:
    """Stands in for an unknown tokenizer: every word between spaces counts as one token.

    Prompts made with it are near their length, not exact; what the server counts is what is reported.
    """

    def encode_text(self, text: str) -> list[int]:
        """A number for each word."""
        return [zlib.crc32(word.encode()) for word in text.split()]

    def decode(self, ids: Iterable[int]) -> str:
        """Nobody can. Raises `BadSetting`: whoever asks needs the true tokenizer."""
        raise BadSetting(
            f"a text of {len(list(ids))} tokens cannot be cut without the target's tokenizer; name it with "
            '--tokenizer, or send the texts as they are (prompts fit "whole")'
        )


def _call(item: WorkItem, prompt: str | Sequence[int]) -> Call:
    return Call(
        id=item.id,
        prompt=prompt,
        num_prompt=item.num_prompt,
        num_output=item.num_output,
        priority=item.priority,
        seed=item.seed,
    )
