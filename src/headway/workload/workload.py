"""A workload: what clients will do, request by request, the same every time it is asked."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from headway.workload.arrivals import Replay
from headway.workload.item import WorkItem
from headway.workload.servegen import ClientMix
from headway.workload.sources import ClosedSource, ReplaySource, Source, Visit
from headway.workload.texts import Texts


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """Everything about the clients, nothing about who answers.

    `duration_s` bounds the intended moments of sending; a client in a closed loop sends nothing new after it.
    `tenants` are those the specification names; `weights` what fairness promises them, `keys` what they authenticate
    with: secrets, so never in `content`, which is the specification as it was given. `skipped` counts, by file, the
    rows of traces that are no requests.
    """

    sources: Sequence[Source]
    name: str = "workload"
    seed: int = 0
    num_requests: int | None = None
    duration_s: float | None = None
    tenants: tuple[str, ...] = ()
    weights: Mapping[str, float] = field(default_factory=dict)
    keys: Mapping[str, str] = field(default_factory=dict, repr=False)
    texts: Texts | None = None
    skipped: Mapping[Path, int] = field(default_factory=dict)
    content: Mapping[str, object] = field(default_factory=dict)

    @property
    def is_closed_loop(self) -> bool:
        """Whether any of it waits for answers before it asks again."""
        return any(isinstance(source, ClosedSource) for source in self.sources)

    @property
    def is_endless(self) -> bool:
        """Whether nothing says when it ends."""
        return self.num_requests is None and self.duration_s is None and any(map(_goes_on, self.sources))

    def left_out(self) -> list[str]:
        """What its files hold that is no request, and how much of it, in words."""
        told = [(path, num, "rows without a prompt or an output") for path, num in self.skipped.items()]
        if self.texts is not None:
            told.append((self.texts.path, self.texts.num_left_out, "conversations without a question and its answer"))
        return [f"{path}: {what} are left out: {num}" for path, num, what in told if num]

    def items(self) -> Iterator[WorkItem]:
        """The requests, equal at every call. Those with a moment come by time; later turns follow their first.

        A turn without a moment is sent `think_s` after the answer to the turn before. The iterator is lazy: an hour of
        requests takes no more memory than what its reader keeps.
        """
        number = 0
        for at_s, items in heapq.merge(*(source.visits(self.seed) for source in self.sources), key=_moment):
            if self.duration_s is not None and at_s >= self.duration_s:
                return
            for item in items:
                if self.num_requests is not None and number >= self.num_requests:
                    return
                yield replace(item, id=f"r{number}")
                number += 1


def _goes_on(source: Source) -> bool:
    match source:
        case ClosedSource() | ClientMix():
            return False
        case ReplaySource():
            return not isinstance(source.arrivals, Replay)
        case _:
            return True


def _moment(visit: Visit) -> float:
    return visit[0]
