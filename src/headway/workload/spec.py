"""A specification's tables to a `Workload`. The fields are those of docs/workloads.md.

Fields at the top hold for everybody; a class's own table wins over the top's, a tenant's over both. Arrivals at the
top are shared by all who have none of their own, by `share`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from headway.workload.context import Context
from headway.workload.laws import POSITIVE_S
from headway.workload.origin import Origin
from headway.workload.rules import text, whole
from headway.workload.settings import Who, to_stream
from headway.workload.spec_levels import combine, read_levels, to_sources
from headway.workload.spec_sources import read_plan, read_recorded
from headway.workload.spec_who import read_settings
from headway.workload.table import Table
from headway.workload.workload import Workload

CountTokens = Callable[[str], int]


def parse_workload(
    content: Mapping[str, object],
    *,
    origin: Origin | None = None,
    folder: Path | None = None,
    count_tokens: CountTokens | None = None,
) -> Workload:
    """The workload that `content` specifies; paths in it count from `folder`.

    `count_tokens` is the target's tokenizer, needed only for prompts that are sent whole. Raises `BadSetting` with
    line, field, value and what is allowed.
    """
    table = Table(content, origin or Origin())
    seed = table.take("seed", whole(0, 2**63 - 1)) or 0
    context = Context(seed=seed, folder=folder or Path(), count_tokens=count_tokens)
    num_requests, duration_s = table.take("num_requests", whole(1, 100_000_000)), table.take("duration_s", POSITIVE_S)
    name, plan = table.take("name", text), read_plan(table)
    top = read_settings(table, context)
    classes, tenants = (read_levels(table, key, context) for key in ("classes", "tenants"))
    feeds = combine(top, classes, tenants)
    recorded = read_recorded(table, context, plan, to_stream(top, Who(), Who()), [feed.stream for feed in feeds])
    table.done()
    workload = Workload(
        sources=[recorded] if recorded else to_sources(table, plan, feeds, num_requests),
        name=name or "workload",
        seed=seed,
        num_requests=num_requests,
        duration_s=duration_s,
        tenants=tuple(level.who.name for level in tenants),
        weights={level.who.name: level.who.weight for level in tenants},
        keys={level.who.name: level.who.key for level in tenants if level.who.key},
        texts=top.texts,
        skipped=context.skipped,
        content=_without_keys(content),
    )
    if workload.is_endless:
        raise table.error("num_requests", "is missing, and so is duration_s: the workload would never end")
    return workload


def _without_keys(content: Mapping[str, object]) -> Mapping[str, object]:
    """The specification as a result file may show it: without secrets."""
    tenants = content.get("tenants")
    if not isinstance(tenants, list):
        return content
    public = [{key: value for key, value in tenant.items() if key != "key"} for tenant in tenants]
    return {**content, "tenants": public}
