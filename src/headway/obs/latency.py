"""When things happened to each request, and the intervals that follow from it.

a: arrival; s: first scheduled; t₁ … tₙ: its tokens leave the engine. Preemptions in between are part of the interval
they fall into.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from headway.core import Admitted, Arrived, Event, Finished, FinishReason, Rejected, Request, TokenEmitted


@dataclass(slots=True)
class ChoiceTimes:
    """First and last token of one choice, seconds on the engine's clock."""

    first_s: float
    last_s: float
    num_tokens: int = 1


@dataclass(slots=True)
class Lifetime:
    """One request from arrival to its end. Intervals are in seconds, None where they do not exist."""

    request: Request
    arrival_s: float
    scheduled_s: float | None = None
    num_cached: int = 0
    choices: dict[int, ChoiceTimes] = field(default_factory=dict)
    reason: FinishReason | None = None

    @property
    def num_output(self) -> int:
        """Tokens of all choices."""
        return sum(choice.num_tokens for choice in self.choices.values())

    @property
    def first_token_s(self) -> float | None:
        """t₁: the first token of any choice."""
        return min((choice.first_s for choice in self.choices.values()), default=None)

    @property
    def last_token_s(self) -> float | None:
        """tₙ: the last token of any choice."""
        return max((choice.last_s for choice in self.choices.values()), default=None)

    @property
    def queue_s(self) -> float | None:
        """s − a."""
        return _between(self.arrival_s, self.scheduled_s)

    @property
    def prefill_s(self) -> float | None:
        """t₁ − s."""
        return _between(self.scheduled_s, self.first_token_s)

    @property
    def decode_s(self) -> float | None:
        """tₙ − t₁."""
        return _between(self.first_token_s, self.last_token_s)

    @property
    def inference_s(self) -> float | None:
        """tₙ − s."""
        return _between(self.scheduled_s, self.last_token_s)

    @property
    def ttft_s(self) -> float | None:
        """t₁ − a."""
        return _between(self.arrival_s, self.first_token_s)

    @property
    def e2e_s(self) -> float | None:
        """tₙ − a."""
        return _between(self.arrival_s, self.last_token_s)

    @property
    def tpot_s(self) -> float | None:
        """(tₙ − t₁) ÷ (n − 1); over several choices, their decode times together ÷ their gaps together."""
        num_gaps = sum(choice.num_tokens - 1 for choice in self.choices.values())
        if num_gaps == 0:
            return None
        return sum(choice.last_s - choice.first_s for choice in self.choices.values()) / num_gaps


class LatencyTracker:
    """Follows every live request through the events; forgets it at its one `Finished` or `Rejected`.

    `on_scheduled` is told each request when it is first scheduled, `on_first` at its first token, `on_end` when it
    finished, aborted and failed ones included; `on_gap` every gap between two tokens of a choice. Rejected requests
    are forgotten without a word: they never ran.
    """

    def __init__(
        self,
        *,
        on_scheduled: Callable[[Lifetime], None],
        on_first: Callable[[Lifetime], None],
        on_gap: Callable[[float], None],
        on_end: Callable[[Lifetime], None],
    ) -> None:
        self._live: dict[str, Lifetime] = {}
        self._on_scheduled, self._on_first, self._on_gap, self._on_end = on_scheduled, on_first, on_gap, on_end

    @property
    def num_live(self) -> int:
        """Requests that have arrived and not ended."""
        return len(self._live)

    def on_event(self, event: Event) -> None:
        """Take the next event. Those of requests that arrived before this tracker listened are passed over."""
        match event:
            case TokenEmitted():
                self._add_token(event)
            case Arrived(request=request):
                # The client's wait began when the request came, not when the loop first saw it.
                self._live[request.id] = Lifetime(request, request.arrival_s)
            case Admitted():
                self._add_admission(event)
            case Finished(request=request, reason=reason):
                if life := self._live.pop(request.id, None):
                    life.reason = reason
                    self._on_end(life)
            case Rejected(request=request):
                self._live.pop(request.id, None)
            case _:
                pass

    def _add_token(self, event: TokenEmitted) -> None:
        life = self._live.get(event.request_id)
        if life is None:
            return
        choice = life.choices.get(event.choice)
        if choice is None:
            life.choices[event.choice] = ChoiceTimes(event.at_s, event.at_s)
            if len(life.choices) == 1:
                self._on_first(life)
            return
        self._on_gap(event.at_s - choice.last_s)
        choice.last_s = event.at_s
        choice.num_tokens += 1

    def _add_admission(self, event: Admitted) -> None:
        life = self._live.get(event.request_id)
        if life is not None and life.scheduled_s is None:
            life.scheduled_s, life.num_cached = event.at_s, event.num_cached
            self._on_scheduled(life)


def _between(begin_s: float | None, end_s: float | None) -> float | None:
    return None if begin_s is None or end_s is None else end_s - begin_s
