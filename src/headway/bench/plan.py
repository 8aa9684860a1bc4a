"""What a run is to do, and how its requests follow each other."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from headway.workload import WorkItem


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPlan:
    """A workload with the client's own limits.

    `items` gives the requests, the same at every call. `max_concurrency` holds requests back in the client, which
    counts as their waiting time. `num_warmups` requests are sent before the run and forgotten; what is sent in the
    first `warmup_s` seconds is measured but left out of the figures. `keys` are the tenants' keys, `content` the
    specification for the report.
    """

    items: Callable[[], Iterable[WorkItem]]
    label: str = ""
    num_total: int | None = None
    duration_s: float | None = None
    is_closed_loop: bool = False
    warmup_s: float = 0.0
    num_warmups: int = 0
    max_concurrency: int | None = None
    timeout_s: float | None = None
    keys: Mapping[str, str] = field(default_factory=dict, repr=False)
    content: Mapping[str, object] = field(default_factory=dict)


def visits(items: Iterable[WorkItem]) -> Iterator[list[WorkItem]]:
    """Items with those behind them that wait for their answer: later turns of their session without a moment.

    An item without moment or session before it starts at once.
    """
    visit: list[WorkItem] = []
    for item in items:
        if visit and item.at_s is None and item.session and item.session == visit[0].session:
            visit.append(item)
            continue
        if visit:
            yield visit
        visit = [item]
    if visit:
        yield visit
