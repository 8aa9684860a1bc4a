"""The words of `/v1/chat/completions`."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec import UNSET, UnsetType

from headway.core import Logprobs
from headway.engine.outputs import Delta
from headway.engine.outputs import Usage as Counts
from headway.server.job import Collected, Job
from headway.server.logprobs import chat_logprobs, prompt_logprobs
from headway.server.port import ServedTokenizer
from headway.server.reply import Head, UsageMode
from headway.server.schema import ChatRequest
from headway.server.wire import (
    ChatChoice,
    ChatChunk,
    ChatChunkChoice,
    ChatCompletion,
    ChatLogprobs,
    Message,
    MessageDelta,
    event,
    usage_of,
)


class ChatReply:
    """Words chat completions, whole or streamed."""

    def __init__(self, body: ChatRequest, head: Head, job: Job, tokenizer: ServedTokenizer) -> None:
        self._body, self._head, self._job, self._tokenizer = body, head, job, tokenizer
        self._begun: set[int] = set()

    def chunk(self, index: int, delta: Delta) -> bytes:
        """An event for the delta, and before a choice's first one the role, as OpenAI does it.

        The role comes together with the first token, so that a client that times it times the token.
        """
        if not (delta.text or delta.token_ids or delta.finish_reason):
            return b""
        opening = b"" if index in self._begun else self._opening(index)
        self._head.num_output += len(delta.token_ids)
        choice = ChatChunkChoice(
            index=index,
            delta=MessageDelta(content=delta.text) if delta.text else MessageDelta(),
            logprobs=self._logprobs(delta.token_ids, delta.logprobs),
            finish_reason=None if delta.finish_reason is None else delta.finish_reason.value,
            stop_reason=UNSET if delta.finish_reason is None else delta.stop_reason,
            token_ids=list(delta.token_ids) if self._body.return_token_ids else UNSET,
        )
        return opening + event(self._chunk([choice]))

    def closing(self, usage: Counts) -> bytes:
        """The counts, if they were asked for."""
        if self._head.usage_mode is UsageMode.NEVER:
            return b""
        document = self._chunk([])
        document.usage = usage_of(usage)
        return event(document)

    def whole(self, choices: Sequence[Collected], usage: Counts) -> bytes:
        """All choices in order."""
        head = self._head
        document = ChatCompletion(
            head.id,
            head.created,
            head.model,
            [self._choice(index, choice) for index, choice in enumerate(choices)],
            usage_of(usage),
            prompt_token_ids=self._prompt_ids(),
            service_tier=head.service_tier,
        )
        if self._body.prompt_logprobs is not None:
            entries = self._job.prompt_logprobs(0)
            document.prompt_logprobs = prompt_logprobs(self._tokenizer, head.prompts[0], entries)
        return msgspec.json.encode(document)

    def _choice(self, index: int, choice: Collected) -> ChatChoice:
        return ChatChoice(
            index=index,
            message=Message(choice.text),
            finish_reason=choice.finish_reason.value,
            logprobs=self._logprobs(choice.token_ids, choice.logprobs),
            stop_reason=choice.stop_reason,
            token_ids=choice.token_ids if self._body.return_token_ids else UNSET,
        )

    def _opening(self, index: int) -> bytes:
        document = self._chunk([ChatChunkChoice(index, MessageDelta(role="assistant", content=""))])
        if not self._begun:
            document.prompt_token_ids = self._prompt_ids()
        self._begun.add(index)
        return event(document)

    def _chunk(self, choices: list[ChatChunkChoice]) -> ChatChunk:
        head = self._head
        return ChatChunk(
            head.id, head.created, head.model, choices, usage=head.running_usage, service_tier=head.service_tier
        )

    def _logprobs(self, token_ids: Sequence[int], logprobs: Sequence[Logprobs]) -> ChatLogprobs | None:
        if not self._body.logprobs:
            return None
        return chat_logprobs(self._tokenizer, token_ids, logprobs, self._body.top_logprobs or 0)

    def _prompt_ids(self) -> list[int] | UnsetType:
        return list(self._head.prompts[0]) if self._body.return_token_ids else UNSET
