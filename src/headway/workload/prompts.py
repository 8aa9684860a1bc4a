"""Made-up prompts with exact token counts. Equal prefix blocks become equal tokens, everything else differs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from headway.errors import BadSetting
from headway.workload.item import WorkItem
from headway.workload.shared import mix
from headway.workload.words import single_token_words

_MASK = (1 << 64) - 1
MIN_WORDS = 32


class Encoder(Protocol):
    """The target's tokenizer, adding no special tokens."""

    def encode_text(self, text: str) -> list[int]:
        """Ids of a text."""
        ...

    def decode(self, ids: Iterable[int]) -> str:
        """Text of ids."""
        ...


def drawn(item: WorkItem, num_choices: int, salt: int = 0) -> NDArray[np.int64]:
    """One number below `num_choices` for each token of the prompt, shape (num_prompt,).

    Positions within equal prefix blocks have equal numbers; the others depend on the item's seed. Another `salt`
    changes all of them, so that a second run finds nothing in a cache that the first one filled.
    """
    start = item.num_prefix
    words = np.empty(item.num_prompt, np.uint64)
    if start:
        bases = np.array([mix(salt, block & _MASK) for block in item.prefix], np.uint64)
        offsets = np.arange(item.prefix_block, dtype=np.uint64)
        words[:start] = _spread(bases[:, None] + offsets[None, :]).ravel()[:start]
    own = np.uint64(mix(salt, item.seed, 1))
    words[start:] = _spread(own + np.arange(start, item.num_prompt, dtype=np.uint64))
    return (words % np.uint64(num_choices)).astype(np.int64)


def _spread(state: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """SplitMix64's finalizer (Steele et al. 2014): neighbours in, unrelated numbers out."""
    state = state * np.uint64(0x9E3779B97F4A7C15)
    state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return (state ^ (state >> np.uint64(31))) >> np.uint64(1)


def continues(earlier: WorkItem, later: WorkItem) -> bool:
    """Whether `later` resends `earlier` and its answer: then the answer that really came may stand in the history."""
    num_blocks = len(earlier.prefix)
    return (
        bool(num_blocks)
        and later.session == earlier.session
        and earlier.num_prefix == earlier.num_prompt
        and later.num_prompt > earlier.num_prompt
        and later.prefix[:num_blocks] == earlier.prefix
    )


class PromptMaker:
    """Prompts as ids and as text, of exactly the tokens an item asks for in `tokenizer`.

    `texts` are the prompts that items with a `text_row` send; with `fit` "exact" they are cut, or continued with the
    next rows, to the item's length. Raises `BadSetting` for a tokenizer that knows too few common words.
    """

    def __init__(self, tokenizer: Encoder, *, salt: int = 0, texts: Sequence[str] = (), fit: str = "exact") -> None:
        self._tokenizer, self._salt, self._texts, self._fit = tokenizer, salt, texts, fit
        self._words = single_token_words(tokenizer.encode_text)
        makes_up = not (texts and fit == "whole")
        if makes_up and len(self._words) < MIN_WORDS:
            raise BadSetting(
                f"made-up prompts need {MIN_WORDS} common words of one token each, and this tokenizer has "
                f'{len(self._words)}; send texts from a file instead (prompts.file with fit = "whole")'
            )
        self._first_ids = np.array([tokenizer.encode_text(word)[0] for word in self._words])
        self._later_ids = np.array([tokenizer.encode_text(f"the {word}")[1] for word in self._words])

    def ids(self, item: WorkItem, history: Sequence[int] = ()) -> list[int]:
        """The prompt's ids, `num_prompt` of them; those of `text` in this tokenizer.

        `history`, the ids of what was said before, takes the place of as many made-up ones; see `continues`.
        """
        if item.text_row is not None and self._texts:
            return self._tokenizer.encode_text(self.text(item))
        which = drawn(item, len(self._words), self._salt)
        made = self._later_ids[which]
        made[0] = self._first_ids[which[0]]
        return [*history[: item.num_prompt], *made[len(history) :].tolist()]

    def text(self, item: WorkItem, *, start: int = 0, overhead: int = 0) -> str:
        """The prompt as text, without its first `start` tokens: `num_prompt` − start − overhead tokens, at least one.

        `overhead` is what the target adds by itself: a BOS, a chat template.
        """
        num_tokens = max(1, item.num_prompt - start - overhead)
        if item.text_row is not None and self._texts:
            return self._from_file(item.text_row, num_tokens)
        which = drawn(item, len(self._words), self._salt)[start : start + num_tokens]
        return " ".join(self._words[k] for k in which)

    def _from_file(self, row: int, num_tokens: int) -> str:
        text = self._texts[row % len(self._texts)]
        if self._fit == "whole":
            return text
        ids = self._tokenizer.encode_text(text)
        following = row
        while len(ids) < num_tokens:
            following += 1
            text += "\n\n" + self._texts[following % len(self._texts)]
            ids = self._tokenizer.encode_text(text)
        return self._cut(ids, num_tokens)

    def _cut(self, ids: Sequence[int], num_tokens: int) -> str:
        """Text of the first ids that has exactly `num_tokens` tokens when it is read again.

        A cut inside a word or a character may read differently, so fewer ids are kept and words of one token fill up.
        """
        for num_kept in range(num_tokens, max(0, num_tokens - 16), -1):
            text = self._tokenizer.decode(ids[:num_kept])
            missing = num_tokens - len(self._tokenizer.encode_text(text))
            if missing == 0:
                return text
            filled = text.rstrip() + "".join(f" {word}" for word in self._words[: max(0, missing)])
            if missing > 0 and len(self._tokenizer.encode_text(filled)) == num_tokens:
                return filled
        return " ".join((self._words * (num_tokens // len(self._words) + 1))[:num_tokens])


class IdMaker:
    """Prompts as ids below `vocab_size`, for targets that read no text: simulators."""

    def __init__(self, vocab_size: int = 32_000, *, salt: int = 0) -> None:
        self._vocab_size, self._salt = vocab_size, salt

    def ids(self, item: WorkItem, history: Sequence[int] = ()) -> list[int]:
        """`num_prompt` ids; `history` takes the place of as many at the start, see `continues`."""
        made = drawn(item, self._vocab_size, self._salt)
        return [*history[: item.num_prompt], *made[len(history) :].tolist()]
