"""What was promised to a sequence, as moments: for its first token, and for each next one (QoServe, ALGORITHMS §20)."""

from __future__ import annotations

import math
from dataclasses import dataclass

from headway.core import Event, Finished, FinishReason, Sequence, SequenceFinished, TokenEmitted
from headway.sched.parts.batchsize import RunningMean


@dataclass(frozen=True, slots=True, kw_only=True)
class Promises:
    """Targets in seconds (units in a tape): first token and gap of an interactive request, gap of a batch one."""

    ttft: float
    tbt: float
    tbt_batch: float


class Terms:
    """Deadlines of sequences. Feed it every event.

    A request with a deadline and no `ttft_s` is a batch request: its prompt is due early enough for the output
    that is expected, which is what was predicted with it, or mean + 2σ of its tenant's, or max_output.
    """

    def __init__(self, promises: Promises) -> None:
        self._promises = promises
        self._first_s: dict[str, float] = {}  # when a sequence's first token came
        self._outputs: dict[str, RunningMean] = {}

    def is_batch(self, seq: Sequence) -> bool:
        """Whether only its end is due."""
        return seq.request.ttft_s is None and seq.request.deadline_s is not None

    def expected_output(self, seq: Sequence) -> float:
        """Tokens that a batch request will emit in all."""
        request = seq.request
        if request.predicted is not None:
            return float(request.predicted)
        if (seen := self._outputs.get(request.tenant)) is None:
            return float(request.max_output)
        return min(float(request.max_output), seen.mean + 2.0 * math.sqrt(seen.variance))

    def first_due(self, seq: Sequence) -> float:
        """When its first token is due."""
        request = seq.request
        if request.ttft_s is not None:
            return request.arrival_s + request.ttft_s
        if request.deadline_s is not None:
            return request.deadline_s - self.expected_output(seq) * self._promises.tbt_batch
        return request.arrival_s + self._promises.ttft

    def next_due(self, seq: Sequence) -> float:
        """When the next token of a decoding sequence is due; a late first token moves all that follow."""
        gap = self._promises.tbt_batch if self.is_batch(seq) else self._promises.tbt
        start_s = max(self._first_s.get(seq.id, 0.0), self.first_due(seq))
        return start_s + gap * (seq.num_output + 1)

    def on_event(self, event: Event) -> None:
        """Note first tokens and output lengths, and forget what ended."""
        match event:
            case TokenEmitted(seq_id=seq_id, at_s=at_s, index=0):
                self._first_s[seq_id] = at_s
            case SequenceFinished(seq_id=seq_id):
                self._first_s.pop(seq_id, None)
            case Finished(request=request, reason=FinishReason.STOP | FinishReason.LENGTH, num_output=num_output):
                self._outputs.setdefault(request.tenant, RunningMean()).add(num_output / request.params.n)
            case _:
                pass
