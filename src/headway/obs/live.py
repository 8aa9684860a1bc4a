"""What a person wants to see of the last minute: steps, latencies, and the requests inside with their time lines."""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from headway.core import (
    Admitted,
    Arrived,
    Event,
    Finished,
    Preempted,
    PreemptMethod,
    Rejected,
    Request,
    Resumed,
    SequenceFinished,
    StepRecord,
    TokenEmitted,
)

NUM_STEPS = 240
NUM_SAMPLES = 2048
WINDOW_S = 60.0
MOST_REQUESTS = 60
MOST_PARTS = 64
_MOST_MOVES = 40


@dataclass(slots=True)
class _Guest:
    """A request inside. `moves` are (second, state it was in from then)."""

    request: Request
    moves: list[tuple[float, str]]
    num_output: int = 0
    num_granted: int = 0
    is_first_due: bool = True
    last_s: dict[str, float] = field(default_factory=dict)

    def move(self, at_s: float, state: str) -> None:
        """Go over into a state, where it is another one; of very many moves the oldest are forgotten."""
        if self.moves[-1][1] != state:
            self.moves.append((at_s, state))
            if len(self.moves) > _MOST_MOVES:
                del self.moves[1]


@dataclass(frozen=True, slots=True)
class _Step:
    """One step. `parts` are (request id, tenant, tokens, whether they belong to a prompt)."""

    step: int
    seconds: float
    predicted_s: float | None
    limit: str | None
    parts: list[tuple[str, str, int, bool]]


class LiveView:
    """Follows one engine's events and draws a picture on demand. Memory is bounded; safe from any thread.

    Times are on the engine's clock, and its newest event is now.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._guests: dict[str, _Guest] = {}
        self._leaving: dict[str, _Guest] = {}
        self._steps: deque[_Step] = deque(maxlen=NUM_STEPS)
        self._ttft: deque[tuple[float, float]] = deque(maxlen=NUM_SAMPLES)
        self._itl: deque[tuple[float, float]] = deque(maxlen=NUM_SAMPLES)
        self._now_s = 0.0

    @property
    def num_inside(self) -> int:
        """Requests that have come and not ended."""
        return len(self._guests)

    def on_events(self, events: Iterable[Event]) -> None:
        """Follow what happens; called in the engine's thread."""
        with self._lock:
            for event in events:
                if type(event) is TokenEmitted:  # by far the most
                    self._add_token(event)
                else:
                    self._take(event)
            self._leaving.clear()  # not before: the step's record stands behind the ends that it brought

    def picture(self, after_step: int = -1, tenant: str | None = None) -> dict[str, Any]:
        """Steps behind `after_step`, latencies of the last minute, requests inside, oldest first.

        Where a `tenant` is given, requests of others have neither ids nor names, and are not listed.
        """
        with self._lock:
            now_s = self._now_s
            steps = [step for step in self._steps if step.step > after_step]
            guests = [one for one in self._guests.values() if tenant is None or one.request.tenant == tenant]
            listed = [self._card(guest) for guest in guests[:MOST_REQUESTS]]
            samples = {"ttft": list(self._ttft), "itl": list(self._itl)}
        return {
            "steps": [_drawn(step, tenant) for step in steps],
            "latency": {name: _percentiles(values, now_s - WINDOW_S) for name, values in samples.items()},
            "requests": listed,
            "num_requests": len(guests),
        }

    def _take(self, event: Event) -> None:
        match event:
            case Arrived(request, at_s):
                self._guests[request.id] = _Guest(request, [(request.arrival_s, "waiting")])
                self._now_s = max(self._now_s, at_s)
            case Admitted() | Preempted() | Resumed():
                self._move(event)
            case StepRecord():
                self._now_s = max(self._now_s, event.end_s)
                self._add_step(event)
            case SequenceFinished():
                if (guest := self._guests.get(event.request_id)) is not None:
                    guest.last_s.pop(event.seq_id, None)
            case Finished(request=request) | Rejected(request=request):
                if (guest := self._guests.pop(request.id, None)) is not None:
                    self._leaving[request.id] = guest
            case _:
                pass

    def _add_token(self, event: TokenEmitted) -> None:
        guest = self._guests.get(event.request_id)
        if guest is None:
            return
        guest.num_output += 1
        before_s = guest.last_s.get(event.seq_id)
        guest.last_s[event.seq_id] = event.at_s
        if before_s is not None:
            self._itl.append((event.at_s, event.at_s - before_s))
        elif guest.is_first_due:
            guest.is_first_due = False
            self._ttft.append((event.at_s, event.at_s - guest.request.arrival_s))
            guest.move(event.at_s, "decode")

    def _move(self, event: Admitted | Preempted | Resumed) -> None:
        guest = self._guests.get(event.request_id)
        if guest is None:
            return
        match event:
            case Preempted(method=method):
                guest.move(event.at_s, "swapped" if method is PreemptMethod.SWAP else "preempted")
            case Admitted(num_cached=num_cached):
                guest.num_granted = num_cached
                guest.move(event.at_s, "prefill")
            case Resumed():
                guest.move(event.at_s, "prefill" if guest.is_first_due else "decode")

    def _add_step(self, record: StepRecord) -> None:
        if not record.grants:
            return
        parts, guests = [], self._guests
        for seq_id, num in record.grants.items():
            guest = guests.get(seq_id) or self._guest(seq_id) or self._guest(seq_id.rpartition("/")[0])
            if guest is None:  # it came before this listened
                continue
            request = guest.request
            is_prompt = guest.moves[-1][1] == "prefill"
            guest.num_granted += num
            if is_prompt and not guest.is_first_due and guest.num_granted >= request.num_prompt + guest.num_output:
                guest.move(record.end_s, "decode")  # it is back where a preemption had interrupted it
            parts.append((request.id, request.tenant, num, is_prompt or num > 1))
        seconds = record.end_s - record.start_s
        self._steps.append(_Step(record.step, seconds, record.predicted_s, record.limit, parts))

    def _guest(self, name: str) -> _Guest | None:
        return self._guests.get(name) or self._leaving.get(name)

    def _card(self, guest: _Guest) -> dict[str, Any]:
        request, now_s = guest.request, self._now_s
        start_s = request.arrival_s
        ends = [*(at_s for at_s, _ in guest.moves[1:]), max(now_s, guest.moves[-1][0])]
        return {
            "id": request.id,
            "tenant": request.tenant,
            "tier": request.tier.name.lower(),
            "state": guest.moves[-1][1],
            "num_prompt": request.num_prompt,
            "num_output": guest.num_output,
            "max_output": request.max_output,
            "age_s": round(max(0.0, now_s - start_s), 3),
            "time_line": [
                [state, round(at_s - start_s, 3), round(end_s - start_s, 3)]
                for (at_s, state), end_s in zip(guest.moves, ends, strict=True)
            ],
        }


def _drawn(step: _Step, tenant: str | None) -> dict[str, Any]:
    """A step in few bytes: small grants of a crowded one are drawn together."""
    parts = [
        (name, owner, num, is_prompt) if tenant in (None, owner) else ("", "", num, is_prompt)
        for name, owner, num, is_prompt in step.parts
    ]
    shown, rest = parts[:MOST_PARTS], parts[MOST_PARTS:]
    if rest:
        shown.append(("", "", sum(num for _, _, num, _ in rest), False))
    return {
        "step": step.step,
        "ms": round(1e3 * step.seconds, 3),
        "predicted_ms": None if step.predicted_s is None else round(1e3 * step.predicted_s, 3),
        "limit": step.limit,
        "num_seqs": len(step.parts),
        "parts": shown,
    }


def _percentiles(samples: Sequence[tuple[float, float]], since_s: float) -> dict[str, float | int | None]:
    values = sorted(value for at_s, value in samples if at_s >= since_s)
    found: dict[str, float | int | None] = {"n": len(values)}
    for percent in (50, 95, 99):
        place = math.ceil(percent / 100 * len(values)) - 1
        found[f"p{percent}"] = round(values[place], 5) if values else None
    return found
