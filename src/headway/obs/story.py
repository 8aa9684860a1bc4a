"""The life of one request, told so that its owner understands where its time went."""

from __future__ import annotations

import re
from typing import Any

from headway.core import Admitted, Finished, Preempted, Rejected, Request, Resumed

_MOST_MOVES = 200


class Story:
    """What happened to one request, as it happens. `predicted_ttft_s` is what admission expected."""

    def __init__(self, request: Request, predicted_ttft_s: float | None) -> None:
        self.request = request
        self._predicted_ttft_s = predicted_ttft_s
        self._moves: list[dict[str, Any]] = []
        self._waits: list[list[float]] = [[request.arrival_s]]  # [from] or [from, to]
        self._num_cached = 0
        self._num_output = 0
        self._first_s: float | None = None
        self._end: Finished | Rejected | None = None

    def emitted(self, at_s: float) -> None:
        """One more token."""
        self._num_output += 1
        if self._first_s is None:
            self._first_s = at_s
            self._note(at_s, "first token")

    def moved(self, event: Admitted | Preempted | Resumed, why: str) -> None:
        """It came onto the device, or left it; `why` is about the latter."""
        at_s = event.at_s
        match event:
            case Preempted(method=method, price_s=price_s):
                price = {} if price_s is None else {"price_s": round(price_s, 6)}
                self._note(at_s, "preempted", method=method.value, why=why, **price)
                self._wait_from(at_s)
            case Admitted(num_cached=num_cached, is_first=is_first):
                self._num_cached = num_cached if is_first else self._num_cached
                self._note(at_s, "admitted" if is_first else "readmitted", cached_tokens=num_cached)
                self._wait_to(at_s)
            case Resumed():
                self._note(at_s, "swapped in")
                self._wait_to(at_s)

    def ended(self, event: Finished | Rejected) -> None:
        """It is over."""
        self._end = event
        match event:
            case Finished(reason=reason, at_s=at_s):
                self._note(at_s, "finished", reason=str(reason))
            case Rejected(reason=reason, at_s=at_s, cause=cause):
                self._note(at_s, "refused", reason=reason, cause=str(cause))
        self._wait_to(event.at_s)

    def waited_through(self, at_s: float) -> bool:
        """Whether it waited when the step that began at `at_s` was planned, and still did after it."""
        return any(wait[0] <= at_s and (len(wait) < 2 or at_s < wait[1]) for wait in self._waits)

    def waited_s(self, now_s: float) -> float:
        """Seconds for which it waited until `now_s`, all times together."""
        return sum((wait[1] if len(wait) == 2 else max(wait[0], now_s)) - wait[0] for wait in self._waits)

    def told(self, split: dict[str, float], steps: list[dict[str, int]]) -> dict[str, Any]:
        """The whole as a document; times in seconds since the request came."""
        request = self.request
        predictions = (
            {}
            if self._predicted_ttft_s is None
            else {
                "ttft_s": {
                    "predicted": round(self._predicted_ttft_s, 4),
                    "actual": None if self._first_s is None else round(self._first_s - request.arrival_s, 4),
                }
            }
        )
        return {
            "id": request.id,
            "state": self._state(),
            "tenant": request.tenant,
            "tier": request.tier.name.lower(),
            "priority": request.priority,
            "num_prompt": request.num_prompt,
            "num_cached": self._num_cached,
            "num_output": self._num_output,
            "deadline_s": None if request.deadline_s is None else round(request.deadline_s - request.arrival_s, 4),
            "ttft_deadline_s": request.ttft_s,
            "finish_reason": str(self._end.reason) if isinstance(self._end, Finished) else None,
            "refusal": str(self._end.cause) if isinstance(self._end, Rejected) else None,
            "time_line": [{"at_s": 0.0, "what": "arrived"}, *self._moves],
            "waited_s": {reason: round(seconds, 4) for reason, seconds in sorted(split.items(), key=lambda it: -it[1])},
            "predictions": predictions,
            "last_steps": steps,
        }

    def _state(self) -> str:
        if self._end is not None:
            return "finished" if isinstance(self._end, Finished) else "refused"
        return "waiting" if len(self._waits[-1]) < 2 else "running"

    def _note(self, at_s: float, what: str, **more: object) -> None:
        if len(self._moves) < _MOST_MOVES:
            self._moves.append({"at_s": round(at_s - self.request.arrival_s, 4), "what": what, **more})

    def _wait_from(self, at_s: float) -> None:
        if len(self._waits[-1]) == 2:
            self._waits.append([at_s])

    def _wait_to(self, at_s: float) -> None:
        if len(self._waits[-1]) == 1:
            self._waits[-1].append(at_s)


def is_called(request_id: str, name: str) -> bool:
    """Whether a client knows a request by this name: its id here, the answer's `id`, or its `X-Request-Id`.

    The server calls a request `kind-name-<12 hex digits>`, with `-0`, `-1` … behind it where there are several prompts.
    """
    if request_id == name:
        return True
    place = request_id.find(name)
    if place < 0 or (place > 0 and not re.fullmatch(r"[a-z]+-", request_id[:place])):
        return False
    return re.fullmatch(r"-[0-9a-f]{12}(-\d+)?", request_id[place + len(name) :]) is not None
