"""The engine's side of one HTTP request: a stream per prompt, read as one, given up as one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from dataclasses import dataclass, field

from headway.core import FinishReason, Logprobs, SamplingParams, Tier
from headway.engine.door import ExtraWords
from headway.engine.outputs import Delta, Usage
from headway.errors import ExecutorFault
from headway.server.patience import too_late
from headway.server.port import ServedEngine, ServedStream

_BACKLOG = 64  # deltas of all prompts that are merged for a slow reader; what comes beyond waits in their streams

_GRACE_S = 0.05  # the engine ends a request at its deadline between two steps; what it says then is more exact


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
    """Streams of one HTTP request. Choice `c` of prompt `p` has index `p * n + c`, as in OpenAI's API.

    At `ends_at`, on the event loop's clock, it ends with what it has, even if the engine is silent. `lengths` are those
    of the prompts, for the usage of what was cut short then.
    """

    def __init__(
        self, streams: Sequence[ServedStream], n: int, tier: Tier = Tier.DEFAULT, lengths: Sequence[int] = ()
    ) -> None:
        self._streams, self._n, self._lengths = streams, n, lengths
        self.tier = tier
        self.ends_at: float | None = None
        self._num_tokens = [0] * self.num_choices
        self._ended: set[int] = set()

    @property
    def num_choices(self) -> int:
        """Choices of all prompts together."""
        return len(self._streams) * self._n

    @property
    def usage(self) -> Usage:
        """Counts of all prompts together; of an unfinished stream those of a request that met its deadline."""
        counts = [stream.usage or self._seen(place) for place, stream in enumerate(self._streams)]
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
        """(choice index, delta) as they come. Raises what any stream raises, `ExecutorFault` for a failed choice.

        Raises `Overloaded` where the deadline came before any token.
        """
        source = self._merged() if len(self._streams) > 1 else self._single(0)
        async for index, delta in source if self.ends_at is None else self._punctual(source, self.ends_at):
            if delta.finish_reason is FinishReason.ERROR:
                raise ExecutorFault("the engine failed while it worked on this request; it is safe to try again")
            self._num_tokens[index] += len(delta.token_ids)
            if delta.finish_reason is not None:
                self._ended.add(index)
                if delta.finish_reason is FinishReason.DEADLINE and not any(self._num_tokens):
                    raise too_late()
            yield index, delta

    async def _punctual(
        self, source: AsyncGenerator[tuple[int, Delta], None], ends_at: float
    ) -> AsyncIterator[tuple[int, Delta]]:
        """What comes in time, then an end for every choice without one. The engine's own usually comes first."""
        now = asyncio.get_running_loop().time
        try:
            while True:
                yield await asyncio.wait_for(anext(source), max(0.0, ends_at + _GRACE_S - now()))
        except StopAsyncIteration:
            return
        except TimeoutError:
            self.abort()
        finally:
            await source.aclose()
        for index in range(self.num_choices):
            if index not in self._ended:
                yield index, Delta(index % self._n, finish_reason=FinishReason.DEADLINE)

    def _seen(self, place: int) -> Usage:
        """What is known of a stream that did not tell its usage."""
        if self.ends_at is None or not self._lengths:
            return Usage(num_prompt=0, num_output=0, num_cached=0)
        num_output = sum(self._num_tokens[place * self._n : (place + 1) * self._n])
        return Usage(num_prompt=self._lengths[place], num_output=num_output, num_cached=0)

    async def collect(self) -> list[Collected]:
        """All choices, whole, by index."""
        choices = [Collected() for _ in range(self.num_choices)]
        async for index, delta in self.deltas():
            choices[index].add(delta)
        return choices

    async def _single(self, place: int) -> AsyncGenerator[tuple[int, Delta], None]:
        first = place * self._n
        async for delta in self._streams[place]:
            yield first + delta.choice, delta

    async def _merged(self) -> AsyncGenerator[tuple[int, Delta], None]:
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
    return Job(streams, params.n, extras.get("tier", Tier.DEFAULT), [len(prompt_ids) for prompt_ids in prompts])
