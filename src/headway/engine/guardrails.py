"""Guardrails: promises watched over a sliding window, and what is held back while one is broken."""

from __future__ import annotations

import logging
import math
import re
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from headway.core import (
    Admitted,
    Arrived,
    Event,
    Finished,
    Rejected,
    Request,
    SequenceFinished,
    StepRecord,
    Tier,
    TokenEmitted,
)
from headway.errors import BadSetting

log = logging.getLogger(__name__)

ACTIONS = ("long", "batch", "slow")
"""Refuse long prompts, and hold back those in the queue; the same for the batch class; let new requests in at half the
rate. The last at level 2 alone."""

MOST_HOLD_S = 30.0
"""So long after it came, at most, a request in the queue is held back."""

_TIMED = re.compile(r"(ttft|itl|queue_wait)_p(\d{1,2})_ms", re.ASCII)
_USAGE = "kv_cache_utilization_max"
_STEP = 1.05  # buckets of the window are this factor wide
_LEAST_S = 1e-5
_LEAST_SAMPLES = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardSettings:
    """The SLO table and how it is watched. An empty table watches nothing.

    `slo` has keys like `ttft_p95_ms`, `itl_p99_ms`, `queue_wait_p95_ms` and `kv_cache_utilization_max`. A promise is
    broken when it is exceeded over the last `window_s` seconds, and kept again when it has been below `slack` times
    its limit for `recover_s`; level 2 follows when it is still broken `escalate_s` after level 1. Prompts of more than
    `long_tokens` are long. `actions` are words of `ACTIONS`.
    """

    slo: Mapping[str, float] = field(default_factory=dict)
    actions: tuple[str, ...] = ACTIONS
    long_tokens: int = 2048
    window_s: float = 30.0
    escalate_s: float = 30.0
    recover_s: float = 10.0
    slack: float = 0.9

    def __post_init__(self) -> None:
        """Check every word. Raises `BadSetting`."""
        for key, limit in self.slo.items():
            if key != _USAGE and not _TIMED.fullmatch(key):
                raise BadSetting(
                    f"the SLO table has {key!r}; known: ttft_pNN_ms, itl_pNN_ms, queue_wait_pNN_ms, {_USAGE}"
                )
            if isinstance(limit, bool) or not isinstance(limit, int | float) or not 0 < limit < 1e9:
                raise BadSetting(f"{key} is {limit!r}; it must be a number above 0")
        if odd := set(self.actions) - set(ACTIONS):
            raise BadSetting(f"{', '.join(sorted(odd))}: no such guardrail action; known: {', '.join(ACTIONS)}")


@dataclass(frozen=True, slots=True)
class Verdict:
    """Why a request is held back."""

    reason: str
    retry_after_s: float


class Window:
    """Quantiles of durations over the last seconds, to within 5 %, in memory that does not grow with their number."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._slots: deque[tuple[int, Counter[int]]] = deque()

    def add(self, at_s: float, value_s: float) -> None:
        """Count one duration."""
        second = math.floor(at_s)
        if not self._slots or self._slots[-1][0] != second:
            self._slots.append((second, Counter()))
        self._slots[-1][1][_bucket(value_s)] += 1

    def quantile(self, share: float, now_s: float) -> float | None:
        """The duration that so many of them do not exceed; None while there are too few to tell."""
        while self._slots and self._slots[0][0] < now_s - self._seconds:
            self._slots.popleft()
        counts: Counter[int] = Counter()
        for _, slot in self._slots:
            counts.update(slot)
        total = counts.total()
        if total < _LEAST_SAMPLES:
            return None
        needed, seen = math.ceil(share * total), 0
        for bucket in sorted(counts):
            seen += counts[bucket]
            if seen >= needed:
                return _LEAST_S * _STEP**bucket
        raise AssertionError("a quantile lies beyond all samples")


class Guardrails:
    """Level 0: all is well. 1: a promise is broken. 2: it stayed broken. Levels fall one by one after quiet times.

    Nothing here makes a batch larger: the only remedy is less work. Levels change in the engine's thread and are read
    from others.
    """

    def __init__(self, settings: GuardSettings, num_blocks: int) -> None:
        self.settings = settings
        self.level = 0
        self.broken: dict[str, float] = {}
        self._num_blocks = num_blocks
        self._watch = _Watch(settings)
        self._judged_s = self._changed_s = -math.inf
        self._quiet_since_s: float | None = None
        self._next_s = -math.inf

    def change(self, settings: GuardSettings) -> None:
        """Go on under another table; the level falls only as it would by itself."""
        if settings.window_s != self.settings.window_s:
            self._watch = _Watch(settings)
        self._watch.promise(settings.slo)
        self.settings = settings

    def verdict(self, request: Request, request_rate: float | None, now_s: float) -> Verdict | None:
        """Whether to hold a new request back."""
        settings, broken = self.settings, ", ".join(self.broken) or "recovering"
        if self.level >= 1:
            if self._is_batch(request):
                return Verdict(f"batch work waits until promises to others hold again ({broken})", settings.recover_s)
            if self._is_long(request):
                return Verdict(
                    f"prompts of more than {settings.long_tokens} tokens wait until promises hold again ({broken})",
                    settings.recover_s,
                )
        if self.level >= 2 and "slow" in settings.actions:
            if now_s < self._next_s:
                return Verdict(
                    f"new requests are slowed down until promises hold again ({broken})", self._next_s - now_s
                )
            self._next_s = now_s + 2.0 / (request_rate or 2.0)
        return None

    def hold_back(self, now_s: float) -> Callable[[Request], bool] | None:
        """What of the queue is held back now: long prompts and batch work, until `MOST_HOLD_S` after they came."""
        if not self.level:
            return None
        return lambda request: (
            now_s < request.arrival_s + MOST_HOLD_S and (self._is_batch(request) or self._is_long(request))
        )

    def _is_batch(self, request: Request) -> bool:
        return "batch" in self.settings.actions and request.tier is Tier.FLEX

    def _is_long(self, request: Request) -> bool:
        return "long" in self.settings.actions and request.num_prompt > self.settings.long_tokens

    def on_events(self, events: Iterable[Event]) -> None:
        """Measure, and judge once a second."""
        if not self.settings.slo and not self.level:
            if self._watch.num_followed:  # a table was taken away: nobody will tell how these end
                self._watch = _Watch(self.settings)
            return
        for event in events:
            self._watch.on_event(event)
            if isinstance(event, StepRecord) and event.end_s >= self._judged_s + 1.0:
                self._judged_s = event.end_s
                self._judge(event)

    def _judge(self, record: StepRecord) -> None:
        now_s, settings = record.end_s, self.settings
        values = {key: self._value(key, record) for key in settings.slo}
        self.broken = {key: value for key, value in values.items() if value > settings.slo[key]}
        is_quiet = all(value <= settings.slack * settings.slo[key] for key, value in values.items())
        self._quiet_since_s = (self._quiet_since_s if self._quiet_since_s is not None else now_s) if is_quiet else None
        if self.broken and self.level < 2 and (self.level == 0 or now_s >= self._changed_s + settings.escalate_s):
            self._move(self.level + 1, now_s)
        elif self.level and self._quiet_since_s is not None and now_s >= self._quiet_since_s + settings.recover_s:
            self._quiet_since_s = now_s
            self._move(self.level - 1, now_s)

    def _move(self, level: int, now_s: float) -> None:
        what = ", ".join(
            f"{key} is {value:.4g}, limit {self.settings.slo[key]:g}" for key, value in self.broken.items()
        )
        log.warning("guardrails go from level %d to %d: %s", self.level, level, what or "promises hold again")
        self.level, self._changed_s = level, now_s

    def _value(self, key: str, record: StepRecord) -> float:
        """The measured counterpart of a limit, in its unit; 0 where nothing was measured."""
        if (found := _TIMED.fullmatch(key)) is None:
            return 1.0 - record.free_blocks / self._num_blocks
        seconds = self._watch.windows[found[1]].quantile(int(found[2]) / 100.0, record.end_s)
        return 0.0 if seconds is None else seconds * 1000.0


class _Watch:
    """Times of living requests, and the windows that they fall into.

    A request that ends while it waits counts with the time it waited once that alone exceeds a promise: else whoever
    gives up early enough would hide that all are late. Sooner it counts as nothing, since nobody knows.
    """

    def __init__(self, settings: GuardSettings) -> None:
        self.windows = {name: Window(settings.window_s) for name in ("ttft", "itl", "queue_wait")}
        self._arrivals: dict[str, float] = {}
        self._lasts: dict[str, float] = {}
        self._queued: set[str] = set()
        self._least_s: dict[str, float] = {}
        self.promise(settings.slo)

    def promise(self, slo: Mapping[str, float]) -> None:
        """From now on these are the promises."""
        self._least_s = dict.fromkeys(self.windows, math.inf)
        for key, limit in slo.items():
            if found := _TIMED.fullmatch(key):
                self._least_s[found[1]] = min(self._least_s[found[1]], limit / 1000.0)

    @property
    def num_followed(self) -> int:
        """Requests and sequences that are remembered until they end."""
        return len(self._arrivals) + len(self._lasts) + len(self._queued)

    def on_event(self, event: Event) -> None:
        """Take the next event."""
        match event:
            case TokenEmitted(seq_id=name, request_id=request_id, at_s=at_s):
                if (last_s := self._lasts.get(name)) is not None:
                    self.windows["itl"].add(at_s, at_s - last_s)
                elif (arrival_s := self._arrivals.pop(request_id, None)) is not None:
                    self.windows["ttft"].add(at_s, at_s - arrival_s)
                self._lasts[name] = at_s
            case Arrived(request, _):
                self._arrivals[request.id] = request.arrival_s
                self._queued.add(request.id)
            case Admitted(request_id=request_id, is_first=True, at_s=at_s) if request_id in self._arrivals:
                self._queued.discard(request_id)
                self.windows["queue_wait"].add(at_s, at_s - self._arrivals[request_id])
            case SequenceFinished(seq_id=name):
                self._lasts.pop(name, None)
            case Finished(request=request, at_s=at_s) | Rejected(request=request, at_s=at_s):
                self._end(request.id, at_s)
            case _:
                pass

    def _end(self, request_id: str, at_s: float) -> None:
        waited_s = at_s - self._arrivals.pop(request_id, at_s)
        waited_for = ["ttft", "queue_wait"] if request_id in self._queued else ["ttft"]
        self._queued.discard(request_id)
        for name in waited_for:
            if waited_s > self._least_s[name]:
                self.windows[name].add(at_s, waited_s)


def _bucket(value_s: float) -> int:
    return max(0, math.ceil(math.log(max(value_s, _LEAST_S) / _LEAST_S, _STEP)))
