"""The end of patience: requests whose time is over, or cannot suffice any more, end in whatever state they are."""

from __future__ import annotations

import heapq
from collections import OrderedDict
from collections.abc import Callable, Iterable
from enum import Enum

from headway.core import Admitted, Arrived, Cause, Event, Finished, FinishReason, Rejected, Request, TokenEmitted
from headway.engine.core import EngineCore


class _Rule(Enum):
    WHOLE = "the whole answer"
    FIRST = "the first token"
    START = "the last moment to begin"


class Expiry:
    """Ends requests at `deadline_s`, and at `arrival_s + ttft_s` where no token was emitted by then.

    One that never was on the device is refused, as soon as its prefill could not be over in time (`token_rate` tells
    prompt tokens per second, None where unknown; of one that came when nobody was here this is not asked, since nobody
    else would measure it anew), and when it waited for `queue_timeout_s` (0: as long as it takes).
    Any other is ended with reason DEADLINE and keeps what it has. Called in the engine's thread, before each step.
    """

    def __init__(self, token_rate: Callable[[Request], float | None]) -> None:
        self.queue_timeout_s = 0.0
        self._token_rate = token_rate
        self._moments: list[tuple[float, int, str, _Rule]] = []
        self._serial = 0
        self._waiting: OrderedDict[str, float] = OrderedDict()
        self._silent: set[str] = set()
        self._started: set[str] = set()

    def on_events(self, events: Iterable[Event]) -> None:
        """Follow what happens."""
        for event in events:
            match event:
                case TokenEmitted(request_id=name):
                    if self._silent:
                        self._silent.discard(name)
                case Arrived(request, _):
                    self._enter(request)
                case Admitted(request_id=name):
                    self._waiting.pop(name, None)
                    self._started.add(name)
                case Finished(request=request) | Rejected(request=request):
                    self._waiting.pop(request.id, None)
                    self._silent.discard(request.id)
                    self._started.discard(request.id)
                case _:
                    pass

    def tend(self, core: EngineCore) -> None:
        """End what is due."""
        now_s = core.clock.now()
        while self._moments and self._moments[0][0] <= now_s:
            _, _, name, rule = heapq.heappop(self._moments)
            self._expire(core, name, rule)
        while self.queue_timeout_s and self._waiting:
            name, arrival_s = next(iter(self._waiting.items()))
            if arrival_s + self.queue_timeout_s > now_s:
                break
            self._waiting.pop(name)
            reason = f"it waited for {now_s - arrival_s:.3g} s without being begun, limit {self.queue_timeout_s:g} s"
            core.refuse(name, reason, Cause.TIMEOUT)

    def _enter(self, request: Request) -> None:
        self._waiting[request.id] = request.arrival_s
        first_s = None if request.ttft_s is None else request.arrival_s + request.ttft_s
        ends = [moment_s for moment_s in (first_s, request.deadline_s) if moment_s is not None]
        if not ends:
            return
        if first_s is not None:
            self._silent.add(request.id)
            self._push(first_s, request.id, _Rule.FIRST)
        if request.deadline_s is not None:
            self._push(request.deadline_s, request.id, _Rule.WHOLE)
        is_alone = len(self._waiting) == 1 and not self._started
        if not is_alone and (rate := self._token_rate(request)):
            self._push(min(ends) - request.num_prompt / rate, request.id, _Rule.START)

    def _push(self, moment_s: float, name: str, rule: _Rule) -> None:
        self._serial += 1
        if len(self._moments) > 256 + 4 * (len(self._waiting) + len(self._started)):
            self._moments = [entry for entry in self._moments if entry[2] in self._waiting or entry[2] in self._started]
            heapq.heapify(self._moments)
        heapq.heappush(self._moments, (moment_s, self._serial, name, rule))

    def _expire(self, core: EngineCore, name: str, rule: _Rule) -> None:
        if name in self._waiting:
            core.refuse(name, "its deadline came before it could be begun; nothing was computed", Cause.DEADLINE)
        elif name in self._started and (rule is _Rule.WHOLE or (rule is _Rule.FIRST and name in self._silent)):
            core.abort(name, FinishReason.DEADLINE)
