"""The words of `/v1/completions`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import msgspec
from msgspec import UNSET, UnsetType

from headway.core import FinishReason
from headway.engine.outputs import Delta
from headway.engine.outputs import Usage as Counts
from headway.server.job import Collected, Job
from headway.server.logprobs import CompletionShaper, prompt_logprobs
from headway.server.params import is_scoring
from headway.server.port import ServedTokenizer
from headway.server.reply import Head, UsageMode
from headway.server.schema import CompletionRequest
from headway.server.wire import Completion, CompletionChoice, CompletionLogprobs, event, usage_of


class CompletionReply:
    """Words completions, whole or streamed; with `echo` each choice begins with its prompt.

    `texts` are the prompts as text, by prompt; needed for echo alone.
    """

    def __init__(
        self, body: CompletionRequest, head: Head, job: Job, tokenizer: ServedTokenizer, texts: Sequence[str]
    ) -> None:
        self._body, self._head, self._job, self._tokenizer, self._texts = body, head, job, tokenizer, texts
        self._n = 1 if body.n is None else body.n
        self._shapers: dict[int, CompletionShaper] = {}
        self._begun: set[int] = set()

    def chunk(self, index: int, delta: Delta) -> bytes:
        """One event, with the echo in front of a choice's first text; nothing where nothing is decided yet."""
        begins = index not in self._begun
        if not (delta.text or delta.token_ids or delta.finish_reason or (begins and self._body.echo)):
            return b""
        self._begun.add(index)
        self._head.num_output += len(delta.token_ids)
        choice = CompletionChoice(
            index=index,
            text=(self._echo(index) if begins else "") + delta.text,
            logprobs=self._logprobs(index, Collected([], delta.token_ids, delta.logprobs)),
            finish_reason=None if delta.finish_reason is None else delta.finish_reason.value,
            stop_reason=UNSET if delta.finish_reason is None else delta.stop_reason,
            token_ids=list(delta.token_ids) if self._body.return_token_ids else UNSET,
            prompt_token_ids=self._prompt_ids(index) if begins else UNSET,
        )
        return event(self._document([choice]))

    def closing(self, usage: Counts) -> bytes:
        """The counts, if they were asked for."""
        if self._head.usage_mode is UsageMode.NEVER:
            return b""
        document = self._document([])
        document.usage = usage_of(usage)
        return event(document)

    def whole(self, choices: Sequence[Collected], usage: Counts) -> bytes:
        """All choices in order. A call that only scores its prompt is not shown the token that had to be computed."""
        if is_scoring(self._body):
            choices = [Collected(finish_reason=FinishReason.LENGTH) for _ in choices]
            usage = replace(usage, num_output=0)
        document = self._document([self._choice(index, choice) for index, choice in enumerate(choices)])
        document.usage = usage_of(usage)
        return msgspec.json.encode(document)

    def _choice(self, index: int, choice: Collected) -> CompletionChoice:
        return CompletionChoice(
            index=index,
            text=self._echo(index) + choice.text,
            logprobs=self._logprobs(index, choice),
            finish_reason=choice.finish_reason.value,
            stop_reason=choice.stop_reason,
            token_ids=choice.token_ids if self._body.return_token_ids else UNSET,
            prompt_token_ids=self._prompt_ids(index),
            prompt_logprobs=UNSET
            if self._body.prompt_logprobs is None
            else prompt_logprobs(self._tokenizer, self._prompt(index), self._job.prompt_logprobs(index)),
        )

    def _document(self, choices: list[CompletionChoice]) -> Completion:
        head = self._head
        return Completion(
            head.id, head.created, head.model, choices, usage=head.running_usage, service_tier=head.service_tier
        )

    def _logprobs(self, index: int, new: Collected) -> CompletionLogprobs | None:
        """Logprobs of new output tokens; those of the prompt come before a choice's first."""
        num_top = self._body.logprobs
        if num_top is None:
            return None
        if (shaper := self._shapers.get(index)) is None:
            shaper = self._shapers[index] = CompletionShaper(self._tokenizer, num_top)
            if self._body.echo:
                token_ids = [*self._prompt(index), *new.token_ids]
                return shaper.shape(token_ids, [None, *self._job.prompt_logprobs(index), *new.logprobs])
        return shaper.shape(new.token_ids, new.logprobs)

    def _echo(self, index: int) -> str:
        return self._texts[index // self._n] if self._body.echo else ""

    def _prompt(self, index: int) -> Sequence[int]:
        return self._head.prompts[index // self._n]

    def _prompt_ids(self, index: int) -> list[int] | UnsetType:
        return list(self._prompt(index)) if self._body.return_token_ids else UNSET
