"""What a caller reads from: one submitted request."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

from headway.core import Logprobs
from headway.engine.loop import Died, Ended, Message, Refused, Scored
from headway.engine.outputs import Delta, Usage
from headway.errors import ExecutorFault, Overloaded


class Stream:
    """One submitted request: iterate over its deltas. Abandoning the iterator early aborts the request.

    What nobody reads waits here, at most the request's whole output: the engine does not wait for its readers. Whoever
    serves strangers gives up on those who stand still, as the server does.
    """

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
                    case Refused(reason, cause, retry_after_s):
                        self.usage = Usage(num_prompt=self.num_prompt, num_output=0, num_cached=0)
                        raise Overloaded(reason, retry_after_s=retry_after_s, cause=cause)
                    case Died(error):
                        raise ExecutorFault(f"the engine stopped: {error}")
        finally:
            if self.usage is None:
                self.abort()
