"""What an engine did with its tokens, from its events: computed once, computed again, computed for nothing."""

from __future__ import annotations

from collections import defaultdict, deque
from dataclasses import dataclass, field

from headway.core import Admitted, Event, Preempted, PreemptMethod, SequenceFinished, StepRecord, TokenEmitted
from headway.report import StepSample


@dataclass(slots=True)
class Life:
    """What the events say about one request. Token times wait here until its stream asks for them."""

    token_s: deque[float] = field(default_factory=deque)
    scheduled_s: float | None = None
    num_preemptions: int = 0

    def take_times(self, num: int) -> list[float]:
        """The next `num` token times."""
        return [self.token_s.popleft() for _ in range(num)]


@dataclass(slots=True)
class TokenLedger:
    """Every token that was computed, sorted by what for.

    `num_computed` are grants; `num_recomputed` those of them at positions that had been computed before and were
    dropped; `num_padding` and `num_wasted_rows` are rows computed for nothing beside the grants.
    """

    num_computed: int = 0
    num_recomputed: int = 0
    num_padding: int = 0
    num_wasted_rows: int = 0
    num_cached: int = 0
    _reached: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    _most: dict[str, int] = field(default_factory=lambda: defaultdict(int))

    @property
    def num_wasted(self) -> int:
        """Rows computed for nothing."""
        return self.num_padding + self.num_wasted_rows

    def admit(self, event: Admitted) -> None:
        """A sequence starts, or starts again, behind what is stored of it."""
        self._reached[event.seq_id] = event.num_cached
        self._most[event.seq_id] = max(self._most[event.seq_id], event.num_cached)
        if event.is_first:
            self.num_cached += event.num_cached

    def step(self, record: StepRecord) -> None:
        """Book a step's grants and waste."""
        for seq_id, num_tokens in record.grants.items():
            start = self._reached[seq_id]
            stop = self._reached[seq_id] = start + num_tokens
            self.num_computed += num_tokens
            self.num_recomputed += max(0, min(stop, self._most[seq_id]) - start)
            self._most[seq_id] = max(self._most[seq_id], stop)
        self.num_padding += sum(record.padding.values())
        self.num_wasted_rows += sum(record.wasted_rows.values())

    def end(self, seq_id: str) -> None:
        """Forget a sequence."""
        self._reached.pop(seq_id, None)
        self._most.pop(seq_id, None)


class EngineWatch:
    """Listens to one engine: lives of requests, samples of steps, the ledger. Events come in the engine's thread."""

    def __init__(self, num_blocks: int) -> None:
        self._num_blocks = num_blocks
        self._lives: dict[str, Life] = {}
        self.ledger = TokenLedger()
        self.steps: list[StepSample] = []
        self._counts = dict.fromkeys(("generation_tokens", "num_preemptions", "num_swaps", "num_steps"), 0)
        self._busy_s = 0.0

    def open(self, request_id: str) -> Life:
        """Follow a request from now on; others are only counted."""
        life = self._lives[request_id] = Life()
        return life

    def close(self, request_id: str) -> None:
        """Follow it no longer."""
        self._lives.pop(request_id, None)

    def totals(self) -> dict[str, float]:
        """Counters since the engine's start, by name."""
        ledger = self.ledger
        return {
            **self._counts,
            "busy_s": self._busy_s,
            "computed_tokens": ledger.num_computed,
            "recomputed_tokens": ledger.num_recomputed,
            "wasted_tokens": ledger.num_wasted,
            "padding_tokens": ledger.num_padding,
            "prefix_cache_hits": ledger.num_cached,
        }

    def on_events(self, events: list[Event]) -> None:
        """Take what happened in a step. Admissions come before its grants, endings behind them."""
        for event in events:
            if isinstance(event, Admitted):
                self.ledger.admit(event)
            self._on_event(event)
        for event in events:
            if isinstance(event, SequenceFinished):
                self.ledger.end(event.seq_id)

    def _on_event(self, event: Event) -> None:
        match event:
            case TokenEmitted(request_id=name, at_s=at_s):
                self._counts["generation_tokens"] += 1
                if (life := self._lives.get(name)) is not None:
                    life.token_s.append(at_s)
            case Admitted(request_id=name, is_first=True, at_s=at_s):
                if (life := self._lives.get(name)) is not None:
                    life.scheduled_s = at_s
            case Preempted(request_id=name, method=method):
                self._counts["num_preemptions"] += 1
                self._counts["num_swaps"] += method is PreemptMethod.SWAP
                if (life := self._lives.get(name)) is not None:
                    life.num_preemptions += 1
            case StepRecord():
                self._step(event)
            case _:
                pass

    def _step(self, record: StepRecord) -> None:
        self.ledger.step(record)
        if not record.grants:
            return
        self._counts["num_steps"] += 1
        self._busy_s += record.end_s - record.start_s
        grants = record.grants.values()
        num_decode = sum(num == 1 for num in grants)
        self.steps.append(
            StepSample(
                start_s=record.start_s,
                duration_s=record.end_s - record.start_s,
                num_prefill=sum(grants) - num_decode,
                num_decode=num_decode,
                num_running=record.queued.num_running,
                num_waiting=record.queued.num_waiting,
                num_preempted=len(record.preempted) + len(record.swapped_out),
                kv_use=1.0 - record.free_blocks / self._num_blocks,
            )
        )
