"""The engine's side of one HTTP request: a stream per prompt, read as one, given up as one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field

from headway.core import FinishReason, Logprobs, SamplingParams, Tier
from headway.engine.door import ExtraWords
from headway.engine.outputs import Delta, Usage
from headway.errors import ExecutorFault
from headway.server.port import ServedEngine, ServedStream

_BACKLOG = 64  # deltas that wait for a slow reader before the engine's own streams have to merge them


@dataclass(slots=True)
class Collected:
    """One choice, put together from its deltas."""

    pieces: list[str] = field(default_factory=list)
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[Logprobs] = field(default_factory=list)
    finish_reason: FinishReason = FinishReason.ABORT
    stop_reason: str | int | None = None

    def add(self, delta: Delta) -> None:
        """Append what one delta brings."""
        self.pieces.append(delta.text)
        self.token_ids += delta.token_ids
        self.logprobs += delta.logprobs
        if delta.finish_reason is not None:
            self.finish_reason, self.stop_reason = delta.finish_reason, delta.stop_reason

    @property
    def text(self) -> str:
        """The whole output."""
        return "".join(self.pieces)


class Job:
    """Streams of one HTTP request. Choice `c` of prompt `p` has index `p * n + c`, as in OpenAI's API."""

    def __init__(self, streams: Sequence[ServedStream], n: int, tier: Tier = Tier.DEFAULT) -> None:
        self._streams, self._n = streams, n
        self.tier = tier

    @property
    def num_choices(self) -> int:
        """Choices of all prompts together."""
        return len(self._streams) * self._n

    @property
    def usage(self) -> Usage:
        """Counts of all prompts together; what an unfinished stream used is not in them."""
        counts = [stream.usage for stream in self._streams if stream.usage is not None]
        return Usage(
            num_prompt=sum(count.num_prompt for count in counts),
            num_output=sum(count.num_output for count in counts),
            num_cached=sum(count.num_cached for count in counts),
        )

    def prompt_logprobs(self, index: int) -> tuple[Logprobs, ...]:
        """Those of the prompt that choice `index` continues, from its second token on."""
        return self._streams[index // self._n].prompt_logprobs

    def abort(self) -> None:
        """Give all of it up. Idempotent, and harmless after the end."""
        for stream in self._streams:
            stream.abort()

    async def deltas(self) -> AsyncIterator[tuple[int, Delta]]:
        """(choice index, delta) as they come. Raises what any stream raises, `ExecutorFault` for a failed choice."""
        source = self._merged() if len(self._streams) > 1 else self._single(0)
        async for index, delta in source:
            if delta.finish_reason is FinishReason.ERROR:
                raise ExecutorFault("the engine failed while it worked on this request; it is safe to try again")
            yield index, delta

    async def collect(self) -> list[Collected]:
        """All choices, whole, by index."""
        choices = [Collected() for _ in range(self.num_choices)]
        async for index, delta in self.deltas():
            choices[index].add(delta)
        return choices

    async def _single(self, place: int) -> AsyncIterator[tuple[int, Delta]]:
        first = place * self._n
        async for delta in self._streams[place]:
            yield first + delta.choice, delta

    async def _merged(self) -> AsyncIterator[tuple[int, Delta]]:
        arrivals: asyncio.Queue[tuple[int, Delta] | Exception | None] = asyncio.Queue(_BACKLOG)

        async def forward(place: int) -> None:
            try:
                async for item in self._single(place):
                    await arrivals.put(item)
            except Exception as error:  # noqa: BLE001 - raised where the deltas are read
                await arrivals.put(error)
            else:
                await arrivals.put(None)

        readers = [asyncio.create_task(forward(place)) for place in range(len(self._streams))]
        try:
            for _ in readers:
                while (item := await arrivals.get()) is not None:
                    if isinstance(item, Exception):
                        raise item
                    yield item
        finally:
            for reader in readers:
                reader.cancel()
            await asyncio.gather(*readers, return_exceptions=True)


def request_names(request_id: str, num_prompts: int) -> list[str]:
    """The engine's name for each prompt of a call; `request_id` must be unique."""
    return [request_id] if num_prompts == 1 else [f"{request_id}-{place}" for place in range(num_prompts)]


def submit_all(
    engine: ServedEngine,
    prompts: Sequence[Sequence[int]],
    params: SamplingParams,
    names: Sequence[str],
    extras: ExtraWords,
) -> Job:
    """Submit every prompt or none: when one is refused, those before it are aborted and the refusal is raised."""
    streams: list[ServedStream] = []
    try:
        for name, prompt_ids in zip(names, prompts, strict=True):
            streams.append(engine.submit(prompt_ids, params, request_id=name, **extras))
    except BaseException:
        for stream in streams:
            stream.abort()
        raise
    return Job(streams, params.n, extras.get("tier", Tier.DEFAULT))
