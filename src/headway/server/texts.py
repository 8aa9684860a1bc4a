"""Texts to token ids, refused early where they cannot fit, and off the event loop where they are long."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, TypeVar

from headway.errors import InvalidRequest, PromptTooLong
from headway.server.faults import TextTooLong
from headway.server.fields import Prompt
from headway.server.port import ServedEngine

Result = TypeVar("Result")

_SHORT_CHARS = 8192  # texts up to here are tokenized at once; longer ones in a thread, so that streams keep flowing


class Texts:
    """The engine's tokenizer and template, for what strangers send."""

    def __init__(self, engine: ServedEngine) -> None:
        self._engine = engine

    async def encode(self, prompts: Prompt) -> list[list[int]]:
        """Token ids of every prompt. Raises `InvalidRequest` for an empty one."""
        texts = [prompt for prompt in prompts if isinstance(prompt, str)]
        self.bound_texts(texts, "prompt")

        def tokenize() -> list[list[int]]:
            return [self._engine.encode(prompt) if isinstance(prompt, str) else prompt for prompt in prompts]

        for prompt in prompts:
            if not isinstance(prompt, str) and len(prompt) >= self._engine.max_model_len:
                raise PromptTooLong(len(prompt), 1, self._engine.max_model_len, param="prompt")
        prompt_ids = await self.off_loop(tokenize, sum(map(len, texts)))
        if not all(prompt_ids):
            raise InvalidRequest("prompt is empty; it must have at least one token", param="prompt")
        return prompt_ids

    async def encode_chat(self, messages: list[dict[str, Any]], variables: dict[str, Any]) -> list[int]:
        """Token ids of a conversation under the model's template. Raises `InvalidRequest` where that refuses."""
        texts = [message["content"] for message in messages]
        self.bound_texts(texts, "messages")
        num_chars = sum(map(len, texts)) + 64 * len(texts)
        prompt_ids = await self.off_loop(lambda: self._engine.chat_ids(messages, **variables), num_chars)
        if not prompt_ids:
            raise InvalidRequest("the chat template made an empty prompt of these messages", param="messages")
        return prompt_ids

    def bound_texts(self, texts: Sequence[str], param: str) -> None:
        """Refuse a text that no tokenization can fit into the context, before any time is spent on it."""
        num_chars = max(map(len, texts), default=0)
        # No character has more than four bytes and no token fewer than one, so most texts need no closer look.
        if num_chars > self._engine.max_model_len and num_chars > self._most_chars:
            raise TextTooLong(
                f"{param} has {num_chars} characters; this server's context of {self._engine.max_model_len} tokens "
                f"cannot hold more than {self._most_chars}",
                param=param,
            )

    async def off_loop(self, work: Callable[[], Result], num_chars: int) -> Result:
        """Do `work` here if it is short, else in a thread."""
        return work() if num_chars <= _SHORT_CHARS else await asyncio.to_thread(work)

    @cached_property
    def _most_chars(self) -> int:
        """Characters of a prompt made of the longest token only."""
        tokenizer = self._engine.tokenizer
        longest = max(len(tokenizer.token_bytes(token_id)) for token_id in range(tokenizer.vocab_size))
        return longest * self._engine.max_model_len
