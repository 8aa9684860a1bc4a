"""Records of requests and steps out of the core's events, at a cost that lets millions of tokens pass."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from headway.core import Admitted, Event, Finished, FinishReason, Preempted, Rejected, StepRecord, TokenEmitted
from headway.report import Outcome, RequestRecord, StepSample
from headway.workload import WorkItem

_MOST_STEPS = 20_000
"""Step samples that are kept; of more, every second one goes, again and again."""


@dataclass(slots=True)
class Life:
    """One live request."""

    item: WorkItem
    intended_s: float
    token_s: array[float] = field(default_factory=lambda: array("d"))
    scheduled_s: float | None = None
    num_cached: int = 0
    num_preemptions: int = 0
    left_s: float | None = None  # when its client gave up
    patience: int = 0  # tokens after which the client gives up; 0 means never
    answer: list[int] | None = None  # its tokens, where a later turn will resend them


class StepSamples:
    """Evenly thinned samples of the steps of a replica, so that any run fits in memory."""

    def __init__(self, num_blocks: int) -> None:
        self._num_blocks = num_blocks
        self._stride = 1
        self._num_seen = 0
        self.kept: list[StepSample] = []

    def add(self, record: StepRecord) -> None:
        """See one more step."""
        self._num_seen += 1
        if self._num_seen % self._stride or not record.grants:
            return
        grants = record.grants.values()
        num_decode = list(grants).count(1)
        self.kept.append(
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
        if len(self.kept) > _MOST_STEPS:
            self.kept = self.kept[::2]
            self._stride *= 2


class Watch:
    """Follows requests through one replica's events.

    `on_end` hears of each end, once, with its time; `on_impatient` of clients that have read enough.
    """

    def __init__(
        self,
        num_blocks: int,
        on_end: Callable[[Life, RequestRecord, float], None],
        on_impatient: Callable[[Life], None],
    ) -> None:
        self.steps = StepSamples(num_blocks)
        self.lives: dict[str, Life] = {}
        self.num_steps = 0
        self.num_preemptions = 0
        self._on_end = on_end
        self._on_impatient = on_impatient

    def on_events(self, events: list[Event]) -> None:
        """Take what happened in a step. Tokens come first in the code because they come most often."""
        lives = self.lives
        for event in events:
            if type(event) is TokenEmitted:
                life = lives[event.request_id]
                token_s = life.token_s
                token_s.append(event.at_s)
                if life.answer is not None:
                    life.answer.append(event.token_id)
                if len(token_s) == life.patience:
                    self._on_impatient(life)
            else:
                self._on_event(event)

    def _on_event(self, event: Event) -> None:
        match event:
            case StepRecord():
                self.num_steps += 1
                self.steps.add(event)
            case Admitted(request_id=name, num_cached=num_cached, is_first=True, at_s=at_s):
                life = self.lives[name]
                life.scheduled_s, life.num_cached = at_s, num_cached
            case Preempted(request_id=name):
                self.lives[name].num_preemptions += 1
                self.num_preemptions += 1
            case Finished(request=request, reason=reason, at_s=at_s):
                self._end(request.id, reason, "", at_s)
            case Rejected(request=request, reason=why, at_s=at_s):
                self._end(request.id, FinishReason.ERROR, why, at_s)
            case _:
                pass

    def _end(self, request_id: str, reason: FinishReason, why: str, at_s: float) -> None:
        life = self.lives.pop(request_id)
        record = record_of(life, reason, at_s)
        if why:
            record = replace(record, outcome=Outcome.REFUSED, reason=why)
        self._on_end(life, record, at_s)


def record_of(life: Life, reason: FinishReason, at_s: float) -> RequestRecord:
    """What a client would have written down.

    `at_s` is when it was told that there is no more, unless it left before; a whole answer ends with its last token.
    """
    item, token_s = life.item, life.token_s
    outcome = Outcome.OK if reason in (FinishReason.STOP, FinishReason.LENGTH) else Outcome.FAILED
    closed_s = None if outcome is Outcome.OK else at_s
    if life.left_s is not None:
        outcome, closed_s = Outcome.CANCELLED, life.left_s
    return RequestRecord(
        id=item.id,
        intended_s=life.intended_s,
        sent_s=life.intended_s,
        outcome=outcome,
        num_prompt=item.num_prompt,
        num_output=len(token_s),
        scheduled_s=life.scheduled_s,
        first_s=token_s[0] if token_s else None,
        last_s=token_s[-1] if token_s else None,
        closed_s=closed_s,
        token_s=token_s,
        num_expected=item.num_output,
        tenant=item.tenant,
        traffic_class=item.traffic_class,
        priority=item.priority,
        slo=item.slo,
        deadline_s=item.deadline_s,
        session=item.session,
        turn=item.turn,
        num_cached=life.num_cached,
        num_preemptions=life.num_preemptions,
        reason=str(reason),
    )
