"""Why did it wait? What each step decided, and the life of each request, for the recent past."""

from __future__ import annotations

import threading
from array import array
from collections import OrderedDict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headway.core import (
    Admitted,
    Arrived,
    Event,
    Finished,
    Hold,
    Preempted,
    Rejected,
    Request,
    Resumed,
    StepRecord,
    TokenEmitted,
)
from headway.obs.story import Story, is_called

BETWEEN = "step_end"
"""Waiting that no step was planned through: for the end of the one under way, or longer ago than the ring remembers."""


@dataclass(frozen=True, slots=True)
class StepNote:
    """One step, compactly: who got how many tokens, who came in, what kept the others. On the engine's clock."""

    step: int
    start_s: float
    end_s: float
    seq_ids: tuple[str, ...]
    num_tokens: array[int]
    admitted: tuple[str, ...]
    preempted: tuple[str, ...]
    limit: Hold | None
    held: Mapping[str, Hold]

    @property
    def num_all(self) -> int:
        """Tokens of the step."""
        return sum(self.num_tokens)

    def tokens_of(self, request_id: str) -> int:
        """Tokens that the choices of a request got."""
        return sum(
            num
            for seq_id, num in zip(self.seq_ids, self.num_tokens, strict=True)
            if seq_id == request_id or seq_id.startswith(request_id + "/")
        )


class Decisions:
    """A ring of the last steps, and the stories of living and recently ended requests. Safe from any thread.

    Memory is bounded: `num_steps` steps, `num_stories` ended requests.
    """

    def __init__(self, num_steps: int = 4096, num_stories: int = 1000) -> None:
        self._lock = threading.Lock()
        self._steps: deque[StepNote] = deque(maxlen=num_steps)
        self._living: dict[str, Story] = {}
        self._ended: OrderedDict[str, Story] = OrderedDict()
        self._num_stories = num_stories
        self._predicted: dict[str, float] = {}
        self._admitted: list[str] = []
        self._record: StepRecord | None = None

    def predict(self, request_id: str, ttft_s: float | None) -> None:
        """Note what was predicted when a request came; before it is submitted."""
        if ttft_s is not None:
            with self._lock:
                self._predicted[request_id] = ttft_s

    def on_events(self, events: Sequence[Event]) -> None:
        """Follow what happens; called in the engine's thread."""
        with self._lock:
            self._record = events[-1] if events and isinstance(events[-1], StepRecord) else None
            for event in events:
                self._take(event)

    def find(self, name: str) -> list[dict[str, Any]]:
        """All requests called `name`, by their own id or the client's, oldest first; see `explain`."""
        with self._lock:
            return [self._explained(story) for story in self._called(name)]

    def ids_of(self, name: str) -> list[tuple[str, str]]:
        """(engine's id, tenant) of the living requests called `name`."""
        with self._lock:
            return [(id_, story.request.tenant) for id_, story in self._living.items() if is_called(id_, name)]

    def last_steps(self, num: int) -> list[StepNote]:
        """The last steps, oldest first."""
        with self._lock:
            return list(self._steps)[-num:]

    def _called(self, name: str) -> list[Story]:
        stories = [*self._ended.items(), *self._living.items()]
        return [story for id_, story in stories if is_called(id_, name)]

    def _take(self, event: Event) -> None:
        match event:
            case TokenEmitted(request_id=name, at_s=at_s):
                if (story := self._living.get(name)) is not None:
                    story.emitted(at_s)
            case Arrived(request, _):
                self._living[request.id] = Story(request, self._predicted.pop(request.id, None))
            case Admitted(request_id=name) | Preempted(request_id=name) | Resumed(request_id=name):
                if isinstance(event, Admitted):
                    self._admitted.append(name)
                if (story := self._living.get(name)) is not None:
                    story.moved(event, self._why(event))
            case StepRecord():
                self._add_step(event)
            case Finished(request=request) | Rejected(request=request):
                self._end(request, event)
            case _:
                pass

    def _why(self, event: Event) -> str:
        """Why a sequence was preempted: between steps that happens when the policy is changed."""
        if self._record is None:
            return "policy change"
        is_short = getattr(event, "price_s", None) is not None or self._record.limit is Hold.KV
        return "memory" if is_short else "policy"

    def _add_step(self, record: StepRecord) -> None:
        admitted, self._admitted = tuple(self._admitted), []
        if not record.grants and record.limit is None:
            return
        self._steps.append(
            StepNote(
                record.step,
                record.start_s,
                record.end_s,
                tuple(record.grants),
                array("l", record.grants.values()),
                admitted,
                (*record.preempted, *record.swapped_out),
                record.limit,
                record.held,
            )
        )

    def _end(self, request: Request, event: Finished | Rejected) -> None:
        story = self._living.pop(request.id, None)
        if story is None:
            return
        story.ended(event)
        self._ended[request.id] = story
        while len(self._ended) > self._num_stories:
            self._ended.popitem(last=False)

    def _explained(self, story: Story) -> dict[str, Any]:
        """A story with its waiting time split by what held it, step by step."""
        split: dict[str, float] = {}
        steps = []
        for note in self._steps:
            if story.waited_through(note.start_s):
                hold = self._hold(note, story.request)
                split[hold] = split.get(hold, 0.0) + max(0.0, note.end_s - note.start_s)
            elif num := note.tokens_of(story.request.id):
                steps.append({"step": note.step, "tokens": num, "of": note.num_all})
        rest_s = story.waited_s(self._steps[-1].end_s if self._steps else 0.0) - sum(split.values())
        if rest_s > 1e-6:
            split[BETWEEN] = rest_s
        return story.told(split, steps[-20:])

    def _hold(self, note: StepNote, request: Request) -> str:
        if (own := note.held.get(request.id)) is not None:
            return own
        for name in note.admitted:
            other = self._living.get(name) or self._ended.get(name)
            if other is None or other.request.arrival_s <= request.arrival_s:
                continue
            if other.request.tenant != request.tenant:
                return Hold.TENANT_SHARE
            if (other.request.tier, other.request.priority) < (request.tier, request.priority):
                return Hold.CLASS
        return note.limit or Hold.POLICY
