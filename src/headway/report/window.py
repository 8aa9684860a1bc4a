"""Which part of a run counts. The rule is fixed, and its words go into every report.

Latencies are those of requests that should have been sent inside the window. Throughput counts what happened inside,
token by token, whichever request it belongs to: so a long answer across the border counts for the part inside.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headway.report.record import RequestRecord, RunRecord

MIN_REQUESTS = 10  # a window with fewer says too little to be called steady


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """Seconds [begin, end] of a run, and why these."""

    begin_s: float
    end_s: float
    rule: str

    @property
    def length_s(self) -> float:
        """End − begin."""
        return self.end_s - self.begin_s

    def has(self, at_s: float | None) -> bool:
        """Whether a moment lies inside."""
        return at_s is not None and self.begin_s <= at_s <= self.end_s


def choose_window(run: RunRecord) -> Window:
    """The steady part of a run: after the warm-up, before the load ends.

    Open loop: from the warm-up's end to the last intended arrival; what is answered after it is drain. Closed loop:
    from the moment every user has had a first answer until the first user has nothing more to ask. Where that leaves
    fewer than ten requests the whole run counts, and the rule says so.
    """
    whole = Window(begin_s=0.0, end_s=run.duration_s, rule="the whole run")
    if not run.requests:
        return whole
    window = _closed(run) if run.is_closed_loop else _open(run)
    if window.length_s > 0 and sum(window.has(request.intended_s) for request in run.requests) >= MIN_REQUESTS:
        return window
    return Window(
        begin_s=0.0, end_s=run.duration_s, rule=f"the whole run, start and drain included: too short for {window.rule}"
    )


def _open(run: RunRecord) -> Window:
    last_s = max(request.intended_s for request in run.requests)
    begin = f"the first {run.warmup_s:g} s" if run.warmup_s else "nothing at the start"
    return Window(
        begin_s=run.warmup_s, end_s=last_s, rule=f"steady state: {begin} and everything after the last arrival left out"
    )


def _closed(run: RunRecord) -> Window:
    sessions: dict[str, list[RequestRecord]] = defaultdict(list)
    for request in run.requests:
        sessions[request.session or request.id].append(request)
    first_s = max(min(request.end_s for request in session) for session in sessions.values())
    last_s = min(max(request.end_s for request in session) for session in sessions.values())
    return Window(
        begin_s=max(run.warmup_s, first_s),
        end_s=last_s,
        rule="steady state: from when every user has had one answer until the first user is done",
    )


def token_times(requests: Sequence[RequestRecord]) -> NDArray[np.float64]:
    """The moment of every output token, in no order. Where only first and last are known, evenly between them."""
    parts = [_times(request) for request in requests if request.first_s is not None and request.num_output]
    return np.concatenate(parts) if parts else np.empty(0)


def _times(request: RequestRecord) -> NDArray[np.float64]:
    if len(request.token_s):
        return np.asarray(request.token_s, np.float64)
    assert request.first_s is not None
    last_s = request.first_s if request.last_s is None else request.last_s
    return np.linspace(request.first_s, last_s, request.num_output)
