"""Totals since the start, counted from events."""

from __future__ import annotations

from collections import Counter

from headway.core import Admitted, Arrived, Cause, Event, Finished, Preempted, Rejected, StepRecord, TokenEmitted
from headway.engine.core import EngineCore
from headway.engine.outputs import EngineStats


class Tally:
    """Counts prompt, cached and output tokens, preemptions, steps, and what was refused after it had been queued.

    A prompt counts when its request is first admitted, as what the cache had of it does: one is a share of the other.
    """

    def __init__(self) -> None:
        self._not_begun: dict[str, int] = {}
        self._num_prompt_tokens = 0
        self._num_cached_tokens = 0
        self._num_output_tokens = 0
        self._num_preemptions = 0
        self._num_steps = 0
        self._rejected: Counter[Cause] = Counter()

    def on_events(self, events: list[Event]) -> None:
        """Add what happened."""
        for event in events:
            match event:
                case TokenEmitted():
                    self._num_output_tokens += 1
                case Arrived(request, _):
                    self._not_begun[request.id] = request.num_prompt
                case Admitted(request_id=request_id, num_cached=num_cached):
                    if (num_prompt := self._not_begun.pop(request_id, None)) is not None:
                        self._num_prompt_tokens += num_prompt
                        self._num_cached_tokens += num_cached
                case Finished(request):
                    self._not_begun.pop(request.id, None)
                case Preempted():
                    self._num_preemptions += 1
                case StepRecord():
                    self._num_steps += 1
                case Rejected(request, cause=cause):
                    self._not_begun.pop(request.id, None)
                    self._rejected[cause] += 1
                case _:
                    pass

    def stats(self, core: EngineCore, refused: Counter[Cause]) -> EngineStats:
        """The totals with a snapshot of queues and pool; each figure is right, together they may be a step apart.

        `refused` are those that were never queued, by cause.
        """
        queues, kv = core.scheduler.queues, core.scheduler.kv
        return EngineStats(
            num_running=len(queues.running),
            num_waiting=len(queues.waiting),
            num_swapped=len(queues.swapped),
            block_size=kv.block_size,
            num_blocks=kv.num_blocks,
            num_free_blocks=kv.num_free,
            num_cached_blocks=kv.num_cached,
            num_used_blocks=max(0, kv.num_blocks - kv.pool.num_free - kv.num_cached),
            num_loosened_blocks=kv.stats.num_loosened,
            num_prompt_tokens=self._num_prompt_tokens,
            num_cached_tokens=self._num_cached_tokens,
            num_output_tokens=self._num_output_tokens,
            num_preemptions=self._num_preemptions,
            num_steps=self._num_steps,
            refused={str(cause): num for cause, num in (refused.copy() + self._rejected.copy()).items()},
        )
