"""The engine for asyncio callers: submit, stream, abort."""

from __future__ import annotations

import asyncio
import itertools
import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn, Self, Unpack

from headway.core import Cause, Event, FinishReason, Request, SamplingParams
from headway.engine.build import Engine, Progress, build_engine
from headway.engine.config import EngineConfig
from headway.engine.control import Control, Guarding
from headway.engine.door import Extras, ExtraWords
from headway.engine.loop import Abort, Call, Died, Ended, EngineLoop, Message, Quit, Refused, Submit
from headway.engine.outputs import EngineStats
from headway.engine.stream import Stream
from headway.errors import InvalidRequest
from headway.models import Tokenizer


class AsyncLLM:
    """A model served to many asyncio callers. `submit`, `abort` and the streams belong to one event loop's thread.

    >>> async with AsyncLLM() as llm:
    ...     async for delta in llm.submit(llm.encode("Once upon a time"), SamplingParams(max_tokens=8)):
    ...         print(delta.text, end="")
    """

    def __init__(
        self,
        model: str | None = None,
        *,
        engine: Engine | None = None,
        guarding: Guarding | None = None,
        **settings: Any,  # noqa: ANN401  # EngineConfig checks them
    ) -> None:
        """Load `model` under `settings` (fields of `EngineConfig`), or serve an `engine` that is built already.

        `guarding` says what is refused at the door; without it, nothing that can be served.
        """
        self.engine = engine or build_engine(EngineConfig(model=model, **settings))
        self._streams: dict[str, Stream] = {}
        self._serial = itertools.count(1)
        self._event_loop: asyncio.AbstractEventLoop | None = None
        self._loop = EngineLoop(self.engine.core, self.engine.text, self._deliver)
        self.control = Control(self.engine, self._loop.send, guarding or Guarding())
        self._loop.tend = self.control.admission.expiry.tend
        self.engine.core.deliver_to(self._loop.on_events)

    @classmethod
    def from_config(
        cls, config: EngineConfig, progress: Progress | None = None, guarding: Guarding | None = None
    ) -> AsyncLLM:
        """Build the engine of a config; blocks until the weights are loaded."""
        return cls(engine=build_engine(config, progress), guarding=guarding)

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
        return self.is_alive and not self.control.is_draining

    @property
    def is_alive(self) -> bool:
        """Whether the engine's thread runs, and has made progress where there is work in the last `step_timeout_s`."""
        most_s = self.control.admission.limits.step_timeout_s
        return self._loop.is_alive and not 0 < most_s < self._loop.stuck_s()

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

    def chat_ids(self, messages: Sequence[Mapping[str, Any]], /, **variables: Any) -> list[int]:  # noqa: ANN401  # template variables
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
        name = request_id or f"req-{secrets.token_hex(4)}-{next(self._serial)}"
        if name in self._streams:
            raise InvalidRequest(f"request id {name!r} is in use", param="request_id")
        now_s = self.engine.clock.now()
        request = self.engine.door.request(name, prompt_ids, params, now_s, Extras(**extras))
        if not self.is_ready:
            self._turn_away(request)
        self.control.admit(request)
        stream = self._streams[name] = Stream(name, request.num_prompt, self.abort)
        self._loop.send(Submit(request))
        return stream

    def _turn_away(self, request: Request) -> NoReturn:
        """Refuse a request because nobody new is taken, or nothing runs; whoever records traffic hears of it."""
        admission = self.control.admission
        admission.tell(request, Cause.DRAINING, request.arrival_s)
        is_meant = self.control.is_draining
        reason = "this server takes no new requests" if is_meant else "the engine has stopped, or a step of it hangs"
        admission.refuse(Cause.DRAINING, f"{reason}; try elsewhere, or later", 5.0)

    def abort(self, request_id: str) -> None:
        """End a request in whatever state it is; unknown or ended ones are left alone."""
        if request_id in self._streams:
            self._loop.send(Abort(request_id, FinishReason.ABORT))

    def stats(self) -> EngineStats:
        """A snapshot of queues, pool and totals."""
        return self.control.stats()

    def add_listener(self, on_events: Callable[[list[Event]], None], /) -> None:
        """Hear every event, once per step, in the engine's thread."""
        self._loop.send(Call(lambda core: core.listen(on_events)))

    def begin_drain(self) -> None:
        """Take no new requests; those in the engine go on."""
        self.control.is_leaving = True

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
        self.control.is_leaving = True
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
                if isinstance(message, Refused):
                    message.retry_after_s = self.control.admission.retry_after_s()
                stream.put(message)
                if isinstance(message, Ended | Refused):
                    del self._streams[request_id]
