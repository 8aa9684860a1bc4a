"""What a run is to do, and how its requests follow each other."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from headway.workload import WorkItem, Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPlan:
    """A workload with the client's own limits.

    `items` gives the requests, the same at every call. `max_concurrency` holds requests back in the client, which
    counts as their waiting time. `num_warmups` requests are sent before the run and forgotten; what is sent in the
    first `warmup_s` seconds is measured but left out of the figures. `keys` are the tenants' keys and `weights` what
    fairness promises them; `content` is the specification for the report.
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
    weights: Mapping[str, float] = field(default_factory=dict)
    content: Mapping[str, object] = field(default_factory=dict)

    @classmethod
    def of(cls, workload: Workload, **own: Any) -> RunPlan:  # noqa: ANN401  # the plan's other fields
        """The plan of a workload; `own` are the fields that a workload does not know."""
        return cls(
            items=workload.items,
            num_total=workload.num_requests,
            duration_s=workload.duration_s,
            is_closed_loop=workload.is_closed_loop,
            keys=workload.keys,
            weights=workload.weights,
            content=workload.content,
            **own,
        )


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
