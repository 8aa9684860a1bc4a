"""Log probabilities in the three shapes that clients know."""

from __future__ import annotations

import codecs
import math
from collections.abc import Sequence
from typing import Any

from headway.core import Logprobs
from headway.server.port import ServedTokenizer
from headway.server.wire import ChatLogprobs, CompletionLogprobs, ContentLogprob, TokenLogprob

LOWEST = -9999.0  # stands for minus infinity, which JSON cannot say


def chat_logprobs(
    tokenizer: ServedTokenizer, token_ids: Sequence[int], logprobs: Sequence[Logprobs], num_top: int
) -> ChatLogprobs:
    """Chat's shape: per token its text, exact bytes, and the `num_top` likeliest."""
    return ChatLogprobs([_content(tokenizer, *pair, num_top) for pair in zip(token_ids, logprobs, strict=True)])


def _content(tokenizer: ServedTokenizer, token_id: int, entry: Logprobs, num_top: int) -> ContentLogprob:
    raw = tokenizer.token_bytes(token_id)
    top = []
    for other_id, logprob in entry.top[:num_top]:
        other = tokenizer.token_bytes(other_id)
        top.append(TokenLogprob(other.decode("utf-8", "replace"), finite(logprob), list(other)))
    return ContentLogprob(raw.decode("utf-8", "replace"), finite(entry.logprob), list(raw), top)


class CompletionShaper:
    """Completions' shape for one choice. Offsets count characters of its text, echoed prompt included."""

    def __init__(self, tokenizer: ServedTokenizer, num_top: int) -> None:
        self._tokenizer, self._num_top = tokenizer, num_top
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._offset = 0

    def shape(self, token_ids: Sequence[int], logprobs: Sequence[Logprobs | None]) -> CompletionLogprobs:
        """The next tokens of the choice. None stands for a token that nothing predicted: the prompt's first."""
        shaped = CompletionLogprobs([], [], [], [])
        for token_id, entry in zip(token_ids, logprobs, strict=True):
            shaped.text_offset.append(self._offset)
            shaped.tokens.append(self._name(token_id))
            shaped.token_logprobs.append(None if entry is None else finite(entry.logprob))
            shaped.top_logprobs.append(None if entry is None else self._top(token_id, entry))
            self._offset += len(self._decoder.decode(self._tokenizer.token_bytes(token_id)))
        return shaped

    def _top(self, token_id: int, entry: Logprobs) -> dict[str, float]:
        # The chosen token is always among them, so there may be one more than was asked for.
        likeliest = {
            self._name(other_id): finite(logprob) for other_id, logprob in reversed(entry.top[: self._num_top])
        }
        return {self._name(token_id): finite(entry.logprob), **likeliest}

    def _name(self, token_id: int) -> str:
        """The token's text; where that is no whole character, its bytes spelled out, so that names differ."""
        raw = self._tokenizer.token_bytes(token_id)
        try:
            return raw.decode()
        except UnicodeDecodeError:
            return "bytes:" + "".join(f"\\x{byte:02x}" for byte in raw)


def prompt_logprobs(
    tokenizer: ServedTokenizer, prompt_ids: Sequence[int], logprobs: Sequence[Logprobs]
) -> list[dict[str, Any] | None]:
    """vLLM's shape: null for the first prompt token, then per position an object by token id."""
    shaped: list[dict[str, Any] | None] = [None]
    for token_id, entry in zip(prompt_ids[1:], logprobs, strict=True):
        ranked = [(other_id, logprob, rank) for rank, (other_id, logprob) in enumerate(entry.top, start=1)]
        shaped.append(
            {
                str(other_id): {
                    "logprob": finite(logprob),
                    "rank": rank,
                    "decoded_token": tokenizer.token_bytes(other_id).decode("utf-8", "replace"),
                }
                for other_id, logprob, rank in [(token_id, entry.logprob, entry.rank), *ranked]
            }
        )
    return shaped


def finite(logprob: float) -> float:
    """The log probability as JSON can carry it."""
    return logprob if math.isfinite(logprob) else LOWEST
