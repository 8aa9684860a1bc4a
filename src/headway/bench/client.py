"""One client: sends its request at the right moment, reads, gives up, tries again, and writes down what it saw."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from dataclasses import dataclass, field, replace

from headway.bench.counting import CountTokens, count_tokens
from headway.bench.target import Broken, Call, Chunk, Closing, Opened, Piece, Refused, Target
from headway.clock import Clock
from headway.report import Outcome, RequestRecord
from headway.workload import WorkItem

LONGEST_BACKOFF_S = 60.0
INTERRUPTED = "the run was interrupted"


@dataclass(slots=True)
class Seen:
    """What came of one attempt so far. Times are the clock's."""

    sent_s: float
    connected_s: float | None = None
    status: int | None = None
    chunks: list[Chunk] = field(default_factory=list)
    closing: Closing | None = None
    num_tokens: int = 0

    def take(self, piece: Piece) -> None:
        """Add a piece. Until the target says otherwise, a chunk counts as one token for whoever gives up."""
        match piece:
            case Chunk():
                self.chunks.append(piece)
                self.num_tokens += 1 if piece.num_tokens is None else piece.num_tokens
            case Opened(connected_s=connected_s, status=status):
                self.connected_s, self.status = connected_s, status
            case Closing():
                self.closing = piece


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """How an attempt ended."""

    outcome: Outcome
    reason: str = ""
    status: int | None = None
    error: Exception | None = None
    retry_after_s: float | None = None


class Client:
    """Sends items to one target. `start_s` is the run's start on the clock; records count from there.

    `timeout_s` is the longest that any answer may take before it counts as failed. `tokenize` is the target's
    tokenizer, for servers that do not tell usage.
    """

    def __init__(
        self,
        target: Target,
        clock: Clock,
        *,
        start_s: float,
        timeout_s: float | None = None,
        tokenize: CountTokens | None = None,
    ) -> None:
        self._target, self._clock, self._start_s = target, clock, start_s
        self._timeout_s, self._tokenize = timeout_s, tokenize
        self.num_coming = 0
        """Tokens so far of the answers that are under way."""
        self.num_recounted = 0
        """Answers whose length by the server's own count differs from their text, encoded again."""

    async def send(self, item: WorkItem, call: Call, intended_s: float) -> tuple[RequestRecord, Exception | None]:
        """Send an item, again where it is refused and its client is patient; the record, and what went wrong.

        `intended_s` is on the clock. Cancelling the task ends the request; the record says what was seen until then.
        """
        num_retries = 0
        seen = Seen(self._clock.now())
        try:
            ending = await self._attempt(item, call, intended_s, seen)
            while ending.outcome is Outcome.REFUSED and num_retries < item.retries:
                backoff_s = min(item.backoff_s * 2**num_retries, LONGEST_BACKOFF_S)
                pause_s = backoff_s if ending.retry_after_s is None else ending.retry_after_s
                patience_s = self._patience_s(item, intended_s)
                if patience_s is not None and patience_s <= pause_s:
                    await asyncio.sleep(patience_s)  # it goes as it was sent away: refused
                    break
                await asyncio.sleep(pause_s)
                num_retries += 1
                seen = Seen(seen.sent_s)
                ending = await self._attempt(item, call, intended_s, seen)
        except asyncio.CancelledError:
            ending = Ending(outcome=Outcome.CANCELLED, reason=INTERRUPTED)
        return replace(self._record(item, seen, ending, intended_s), num_retries=num_retries), ending.error

    async def _attempt(self, item: WorkItem, call: Call, intended_s: float, seen: Seen) -> Ending:
        """One try. What it sees is in `seen`, whatever happens."""
        patience_s = self._patience_s(item, intended_s)
        limits = [limit for limit in (patience_s, self._timeout_s) if limit is not None]
        try:
            async with asyncio.timeout(min(limits, default=None)):
                return await self._read(item, call, seen)
        except TimeoutError as error:
            if patience_s is not None and patience_s <= (self._timeout_s or patience_s):
                return Ending(outcome=Outcome.CANCELLED, reason=f"the client gave up after {item.cancel_s:g} s")
            return Ending(outcome=Outcome.FAILED, reason=f"no end within {self._timeout_s:g} s", error=error)
        except Refused as error:
            wait_s = error.retry_after_s
            return Ending(
                outcome=Outcome.REFUSED, reason=str(error), status=error.status, error=error, retry_after_s=wait_s
            )
        except Broken as error:
            return Ending(outcome=Outcome.FAILED, reason=str(error), status=error.status, error=error)
        finally:
            self.num_coming -= seen.num_tokens

    async def _read(self, item: WorkItem, call: Call, seen: Seen) -> Ending:
        async with aclosing(self._target.stream(call)) as pieces:
            async for piece in pieces:
                num_before = seen.num_tokens
                seen.take(piece)
                self.num_coming += seen.num_tokens - num_before
                if item.cancel_tokens is not None and seen.num_tokens >= item.cancel_tokens and seen.closing is None:
                    return Ending(
                        outcome=Outcome.CANCELLED, reason=f"the client gave up after {item.cancel_tokens} tokens"
                    )
                if item.read_tokens_s is not None and isinstance(piece, Chunk):
                    await asyncio.sleep((piece.num_tokens or 1) / item.read_tokens_s)
        if seen.closing is None:
            return Ending(outcome=Outcome.FAILED, reason="the answer ended before it was whole")
        return Ending(outcome=Outcome.OK, reason=seen.closing.finish_reason)

    def _record(self, item: WorkItem, seen: Seen, ending: Ending, intended_s: float) -> RequestRecord:
        count = count_tokens(seen.chunks, seen.closing, self._tokenize)
        if count.source == "usage" and count.num_reencoded not in (None, count.num_output):
            self.num_recounted += 1
        told = seen.closing or Closing(at_s=self._clock.now())
        token_s = [] if item.read_tokens_s is not None else [at_s - self._start_s for at_s in count.token_s]
        return RequestRecord(
            id=item.id,
            intended_s=intended_s - self._start_s,
            outcome=ending.outcome,
            num_prompt=item.num_prompt if told.num_prompt is None else told.num_prompt,
            num_output=count.num_output,
            sent_s=seen.sent_s - self._start_s,
            connected_s=self._since_start(seen.connected_s),
            scheduled_s=self._since_start(told.scheduled_s),
            first_s=seen.chunks[0].at_s - self._start_s if seen.chunks else None,
            last_s=seen.chunks[-1].at_s - self._start_s if seen.chunks else None,
            closed_s=told.at_s - self._start_s,
            token_s=token_s,
            count_source=count.source,
            num_expected=item.num_output,
            tenant=item.tenant,
            traffic_class=item.traffic_class,
            priority=item.priority,
            slo=item.slo,
            deadline_s=item.deadline_s,
            session=item.session,
            turn=item.turn,
            num_cached=told.num_cached,
            num_preemptions=told.num_preemptions,
            status=ending.status or seen.status,
            reason=ending.reason,
        )

    def _patience_s(self, item: WorkItem, intended_s: float) -> float | None:
        """How much longer its client waits; None: as long as it takes."""
        return None if item.cancel_s is None else max(0.0, intended_s + item.cancel_s - self._clock.now())

    def _since_start(self, at_s: float | None) -> float | None:
        return None if at_s is None else at_s - self._start_s
