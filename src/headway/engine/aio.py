"""The engine for asyncio callers: submit, stream, abort."""

from __future__ import annotations

import asyncio
import itertools
import secrets
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any, Self, Unpack

from headway.core import Event, FinishReason, SamplingParams
from headway.core.result import Logprobs
from headway.engine.build import Engine, Progress, build_engine
from headway.engine.config import EngineConfig
from headway.engine.door import Extras, ExtraWords
from headway.engine.loop import Abort, Call, Died, Ended, EngineLoop, Message, Quit, Refused, Scored, Submit
from headway.engine.outputs import Delta, EngineStats, Usage
from headway.engine.tally import Tally
from headway.errors import ExecutorFault, InvalidRequest, Overloaded
from headway.models import Tokenizer


class Stream:
    """One submitted request: iterate over its deltas. Abandoning the iterator early aborts the request."""

    def __init__(self, request_id: str, num_prompt: int, abort: Callable[[str], None]) -> None:
        self.request_id = request_id
        self.num_prompt = num_prompt
        self.prompt_logprobs: tuple[Logprobs, ...] = ()
        self.usage: Usage | None = None
        self._abort = abort
        self._messages: asyncio.Queue[Message] = asyncio.Queue()

    def abort(self) -> None:
        """Stop the request; its choices then end with reason `abort`. Idempotent."""
        self._abort(self.request_id)

    def put(self, message: Message) -> None:
        """Add what the engine said; called on the asyncio thread."""
        self._messages.put_nowait(message)

    async def __aiter__(self) -> AsyncIterator[Delta]:
        """Deltas until every choice had its last. Raises `Overloaded` or `ExecutorFault` where it came to nothing."""
        try:
            while self.usage is None:
                match await self._messages.get():
                    case Delta() as delta:
                        yield delta
                    case Ended(usage):
                        self.usage = usage
                    case Scored(logprobs):
                        self.prompt_logprobs = logprobs
                    case Refused(reason):
                        self.usage = Usage(num_prompt=self.num_prompt, num_output=0, num_cached=0)
                        raise Overloaded(reason)
                    case Died(error):
                        raise ExecutorFault(f"the engine stopped: {error}")
        finally:
            if self.usage is None:
                self.abort()


class AsyncLLM:
    """A model served to many asyncio callers. `submit`, `abort` and the streams belong to one event loop's thread.

    >>> async with AsyncLLM() as llm:
    ...     async for delta in llm.submit(llm.encode("Once upon a time"), SamplingParams(max_tokens=8)):
    ...         print(delta.text, end="")
    """

    def __init__(self, model: str | None = None, *, engine: Engine | None = None, **settings: Any) -> None:  # noqa: ANN401  # EngineConfig checks them
        """Load `model` under `settings` (fields of `EngineConfig`), or serve an `engine` that is built already."""
        self.engine = engine or build_engine(EngineConfig(model=model, **settings))
        self._streams: dict[str, Stream] = {}
        self._serial = itertools.count(1)
        self._tally = Tally()
        self._draining = False
        self._event_loop: asyncio.AbstractEventLoop | None = None
        self._loop = EngineLoop(self.engine.core, self.engine.text, self._deliver)
        self.engine.core.listen(self._tally.on_events)
        self.engine.core.listen(self._loop.on_events)

    @classmethod
    def from_config(cls, config: EngineConfig, progress: Progress | None = None) -> AsyncLLM:
        """Build the engine of a config; blocks until the weights are loaded."""
        return cls(engine=build_engine(config, progress))

    def start(self) -> None:
        """Start the engine's thread; call it on the event loop that will consume the streams."""
        self._event_loop = asyncio.get_running_loop()
        self._loop.start()

    async def __aenter__(self) -> Self:
        self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @property
    def is_ready(self) -> bool:
        """Whether new requests are taken."""
        return self._loop.is_alive and not self._draining

    @property
    def is_alive(self) -> bool:
        """Whether the engine's thread runs."""
        return self._loop.is_alive

    @property
    def model_name(self) -> str:
        """What clients call the model unless the server says otherwise."""
        return self.engine.name

    @property
    def tokenizer(self) -> Tokenizer:
        """Ids from texts and back."""
        return self.engine.tokenizer

    @property
    def honours_priority(self) -> bool:
        """Whether the policy serves a request with a lower `priority` earlier."""
        return self.engine.core.scheduler.policy.honours_priority

    @property
    def honours_tier(self) -> bool:
        """Whether the policy tells service tiers apart."""
        return self.engine.core.scheduler.policy.honours_tier

    @property
    def max_model_len(self) -> int:
        """Most tokens, prompt + output, of one sequence."""
        return self.engine.limits.max_model_len

    def encode(self, text: str) -> list[int]:
        """Prompt ids of a text: BOS once where the model wants it; special tokens in the text stay text."""
        return self.engine.tokenizer.encode_prompt(text)

    def chat_ids(self, messages: Sequence[Mapping[str, Any]], **variables: Any) -> list[int]:  # noqa: ANN401  # template variables
        """Prompt ids of a conversation under the model's chat template. Raises `InvalidRequest`."""
        return self.engine.prompts.encode(messages, **variables)

    def submit(
        self,
        prompt_ids: Sequence[int],
        params: SamplingParams,
        *,
        request_id: str | None = None,
        **extras: Unpack[ExtraWords],
    ) -> Stream:
        """Queue a request. Raises `InvalidRequest` or `Overloaded` at once; later failures come from the stream.

        `extras` are fields of `Extras`.
        """
        if not self.is_ready:
            raise Overloaded("the server is shutting down" if self._draining else "the engine is not running")
        name = request_id or f"req-{secrets.token_hex(4)}-{next(self._serial)}"
        if name in self._streams:
            raise InvalidRequest(f"request id {name!r} is in use", param="request_id")
        request = self.engine.door.request(name, prompt_ids, params, self.engine.clock.now(), Extras(**extras))
        stream = self._streams[name] = Stream(name, request.num_prompt, self.abort)
        self._loop.send(Submit(request))
        return stream

    def abort(self, request_id: str) -> None:
        """End a request in whatever state it is; unknown or ended ones are left alone."""
        if request_id in self._streams:
            self._loop.send(Abort(request_id, FinishReason.ABORT))

    def stats(self) -> EngineStats:
        """A snapshot of queues, pool and totals."""
        return self._tally.stats(self.engine.core)

    def add_listener(self, on_events: Callable[[list[Event]], None], /) -> None:
        """Hear every event, once per step, in the engine's thread."""
        self._loop.send(Call(lambda core: core.listen(on_events)))

    def begin_drain(self) -> None:
        """Take no new requests; those in the engine go on."""
        self._draining = True

    async def drained(self, timeout_s: float) -> bool:
        """Wait until all requests ended; False when some are left at the time-out."""
        deadline_s = self.engine.clock.now() + timeout_s
        while self._streams and self._loop.is_alive:
            if self.engine.clock.now() >= deadline_s:
                return False
            await asyncio.sleep(0.02)
        return True

    async def stop(self) -> None:
        """Abort what is left (its streams end with reason `abort`) and stop the thread. Idempotent.

        The executor stays open, for another engine over the same model.
        """
        self._draining = True
        self._loop.send(Quit())
        await asyncio.to_thread(self._loop.join)

    async def close(self) -> None:
        """Stop, and free the memory. Idempotent."""
        await self.stop()
        self.engine.core.executor.close()

    def _deliver(self, messages: list[tuple[str, Message]]) -> None:
        """Called in the engine's thread, once per step."""
        if self._event_loop is not None and not self._event_loop.is_closed():
            self._event_loop.call_soon_threadsafe(self._dispatch, messages)

    def _dispatch(self, messages: list[tuple[str, Message]]) -> None:
        for request_id, message in messages:
            if isinstance(message, Died):
                for every in self._streams.values():
                    every.put(message)
                self._streams.clear()
            elif (stream := self._streams.get(request_id)) is not None:
                stream.put(message)
                if isinstance(message, Ended | Refused):
                    del self._streams[request_id]
