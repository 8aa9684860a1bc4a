"""The engine as the server sees it. `headway.engine.aio.AsyncLLM` is one; so is anything with the same shape."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, Protocol, Unpack

from headway.core import Event, Logprobs, SamplingParams
from headway.engine.control import Control
from headway.engine.door import ExtraWords
from headway.engine.outputs import Delta, EngineStats, Usage


class ServedStream(Protocol):
    """One submitted request. Iterating ends after every choice had its last delta, or raises what went wrong.

    `usage` is set when the iteration ends; `prompt_logprobs`, where asked for, before the first delta.
    """

    usage: Usage | None
    prompt_logprobs: tuple[Logprobs, ...]

    def __aiter__(self) -> AsyncIterator[Delta]: ...

    def abort(self) -> None:
        """Give the request up. Idempotent; the iteration then ends with deltas whose reason is ABORT."""
        ...


class ServedTokenizer(Protocol):
    """Ids and their bytes."""

    @property
    def vocab_size(self) -> int: ...

    def encode_text(self, text: str) -> list[int]: ...

    def decode(self, ids: Sequence[int]) -> str: ...

    def token_bytes(self, token_id: int) -> bytes: ...

    def token_text(self, token_id: int) -> str: ...


class ServedEngine(Protocol):
    """What the routes need. `submit` raises at once what can be known at once: `InvalidRequest`, `Overloaded`."""

    @property
    def tokenizer(self) -> ServedTokenizer: ...

    @property
    def model_name(self) -> str: ...

    @property
    def max_model_len(self) -> int: ...

    @property
    def honours_priority(self) -> bool: ...

    @property
    def honours_tier(self) -> bool: ...

    @property
    def control(self) -> Control: ...

    @property
    def is_ready(self) -> bool: ...

    @property
    def is_alive(self) -> bool: ...

    def encode(self, text: str) -> list[int]: ...

    def chat_ids(self, messages: list[dict[str, Any]], /, **variables: object) -> list[int]: ...

    def submit(
        self,
        prompt_ids: Sequence[int],
        params: SamplingParams,
        *,
        request_id: str | None = None,
        **extras: Unpack[ExtraWords],
    ) -> ServedStream: ...

    def stats(self) -> EngineStats: ...

    def add_listener(self, on_events: Callable[[list[Event]], None], /) -> None: ...

    def start(self) -> None: ...

    def begin_drain(self) -> None: ...

    async def drained(self, timeout_s: float) -> bool: ...

    async def close(self) -> None: ...
