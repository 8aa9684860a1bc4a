"""What a run leaves behind: one record per request, and what is known about the rest.

Written by everything that measures or simulates, read by everything that reports. All times are seconds since the
run's start, on one clock.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import pairwise

from headway.core import Slo


class Outcome(StrEnum):
    """How a request ended, as its client saw it."""

    OK = "ok"  # the whole answer arrived
    REFUSED = "refused"  # turned away before any token: 429, 503, a full queue
    FAILED = "failed"  # an error, a closed connection, a time-out
    CANCELLED = "cancelled"  # the client itself gave up


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestRecord:
    """One request, from the moment it should have been sent to its end.

    Latency counts from `intended_s`; `sent_s` is when the client got to it, None if it never did. `token_s` holds the
    arrival of every token, empty where only `first_s` and `last_s` are known; tokens that came in one chunk share its
    time. `first_s` and `last_s` are the first and last token, `closed_s` the end of the stream. `num_output` counts
    tokens as `count_source` says: "usage" (the server's own count), "ids", or the estimates "retokenized" and "chunks".
    `scheduled_s`, `num_cached` and `num_preemptions` are known only where the server or simulator tells.
    """

    id: str
    intended_s: float
    outcome: Outcome
    num_prompt: int
    num_output: int = 0
    sent_s: float | None = None
    connected_s: float | None = None
    scheduled_s: float | None = None
    first_s: float | None = None
    last_s: float | None = None
    closed_s: float | None = None
    token_s: Sequence[float] = ()
    count_source: str = "ids"
    num_expected: int | None = None  # tokens the workload asked the server to make
    tenant: str = ""
    traffic_class: str = ""
    priority: int = 0
    weight: float = 1.0  # the tenant's, for weighted fairness
    slo: Slo = field(default_factory=Slo)
    deadline_s: float | None = None  # seconds after `intended_s`
    session: str = ""
    turn: int = 0
    num_cached: int | None = None
    num_preemptions: int | None = None
    num_retries: int = 0
    status: int | None = None  # HTTP status, where there is one
    reason: str = ""  # why it was refused, failed or cancelled; the finish reason otherwise

    @property
    def is_ok(self) -> bool:
        """Whether the whole answer arrived."""
        return self.outcome is Outcome.OK

    @property
    def lateness_s(self) -> float | None:
        """sent − intended: the client's own delay."""
        return _between(self.intended_s, self.sent_s)

    @property
    def queue_s(self) -> float | None:
        """Scheduled − intended."""
        return _between(self.intended_s, self.scheduled_s)

    @property
    def ttft_s(self) -> float | None:
        """t₁ − a, a = intended."""
        return _between(self.intended_s, self.first_s)

    @property
    def e2e_s(self) -> float | None:
        """tₙ − a, a = intended."""
        return _between(self.intended_s, self.last_s)

    @property
    def tpot_s(self) -> float | None:
        """(tₙ − t₁) ÷ (n − 1); None below two tokens."""
        decode_s = _between(self.first_s, self.last_s)
        return None if decode_s is None or self.num_output < 2 else decode_s / (self.num_output - 1)

    @property
    def itl_s(self) -> list[float]:
        """Every gap between two tokens, zero within a chunk; empty where token times are unknown."""
        return [later - earlier for earlier, later in pairwise(self.token_s)]

    @property
    def end_s(self) -> float:
        """The last moment known of it."""
        times = (self.intended_s, self.sent_s, self.last_s, self.closed_s)
        return max(time for time in times if time is not None)

    @property
    def ttft_since_sent_s(self) -> float | None:
        """t₁ − sent: what a client blind to its own delay would report."""
        return _between(self.sent_s, self.first_s)

    @property
    def has_promise(self) -> bool:
        """Whether anything was promised to it."""
        return not self.slo.is_empty or self.deadline_s is not None

    def meets_slo(self) -> bool | None:
        """Whether it got all it was promised; None if nothing was, or if its client gave up while all was well.

        A request that was refused or failed missed its promise. One that its client cancelled is judged by the wait
        for its first token alone. A single token has no TPOT to miss.
        """
        if not self.has_promise:
            return None
        if self.outcome is Outcome.CANCELLED:
            waited_s = self.ttft_s if self.ttft_s is not None else self.end_s - self.intended_s
            return False if self.slo.ttft_s is not None and waited_s > self.slo.ttft_s else None
        if not self.is_ok:
            return False
        measured = (
            (self.ttft_s, self.slo.ttft_s),
            (self.tpot_s, self.slo.tpot_s),
            (self.e2e_s, self.slo.e2e_s),
            (self.e2e_s, self.deadline_s),
        )
        return all(limit is None or value is None or value <= limit for value, limit in measured)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepSample:
    """One step of an engine. `kv_use` is blocks not free ÷ all; waiting and running count sequences."""

    start_s: float
    duration_s: float
    num_prefill: int = 0
    num_decode: int = 0
    num_running: int = 0
    num_waiting: int = 0
    num_preempted: int = 0
    kv_use: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
    """A whole run: its requests, and what it was run on.

    `target` names what answered (url, model, policy, …), `environment` the machine and versions, `workload` the
    specification as given. `duration_s` is from the run's start to its last event. `server` holds counters the server
    told, their growth over the run; `client_lag_s` how late the client's own loop woke up, sampled. `is_complete` is
    false where the run was interrupted: what is here was measured all the same. `notes` are for the reader.
    """

    requests: Sequence[RequestRecord]
    duration_s: float
    label: str = ""
    started_at: str = ""  # ISO 8601, UTC; empty in virtual time
    is_virtual: bool = False
    is_complete: bool = True
    target: Mapping[str, object] = field(default_factory=dict)
    environment: Mapping[str, object] = field(default_factory=dict)
    workload: Mapping[str, object] = field(default_factory=dict)
    server: Mapping[str, float] = field(default_factory=dict)
    steps: Sequence[StepSample] = ()
    client_lag_s: Sequence[float] = ()
    warmup_s: float = 0.0
    is_closed_loop: bool = False
    notes: Sequence[str] = ()


def _between(begin_s: float | None, end_s: float | None) -> float | None:
    return None if begin_s is None or end_s is None else end_s - begin_s
