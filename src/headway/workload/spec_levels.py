"""Classes and tenants: who takes part, what each level says, and which arrivals feed whom."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product

from headway.workload.context import Context
from headway.workload.settings import Settings, Who, to_stream
from headway.workload.sources import Source
from headway.workload.spec_sources import Plan, read_plan, to_source
from headway.workload.spec_who import read_who
from headway.workload.streams import Stream
from headway.workload.table import Table


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """A class or tenant with its own arrivals, if it has any; nobody in particular where none is specified."""

    who: Who
    table: Table | None = None
    plan: Plan | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Feed:
    """A stream, the settings behind it, and the level whose arrivals feed it: None for those at the top."""

    stream: Stream
    settings: Settings
    owner: Level | None


def read_levels(table: Table, key: str, context: Context) -> list[Level]:
    """The list of classes or tenants under `key`. Raises `BadSetting`."""
    levels: list[Level] = []
    for part in table.tables(key):
        plan, who = read_plan(part), read_who(part, context)
        part.done()
        if who.name in {level.who.name for level in levels}:
            raise part.error("name", f"is {who.name!r}, which another of the {key} has already")
        if who.settings.texts:
            raise part.error("prompts", "names a file; only the top of a workload can")
        levels.append(Level(who=who, table=part, plan=plan))
    return levels


def combine(top: Settings, classes: Sequence[Level], tenants: Sequence[Level]) -> list[Feed]:
    """Every class of every tenant. Raises `BadSetting` where both a class and a tenant have arrivals."""
    nobody = [Level(who=Who())]
    feeds: list[Feed] = []
    for tenant, cls in product(tenants or nobody, classes or nobody):
        if cls.plan is not None and tenant.plan is not None:
            assert cls.table is not None
            raise cls.table.error(
                "arrivals", f"are given, and tenant {tenant.who.name!r} has its own as well; remove one"
            )
        settings = top.under(cls.who.settings).under(tenant.who.settings)
        owner = cls if cls.plan is not None else tenant if tenant.plan is not None else None
        feeds.append(Feed(stream=to_stream(settings, cls.who, tenant.who), settings=settings, owner=owner))
    return feeds


def to_sources(table: Table, plan: Plan | None, feeds: Sequence[Feed], num_requests: int | None) -> list[Source]:
    """One source for every arrival process.

    Raises `BadSetting` for a stream that no arrivals feed, or whose requests nobody gave a length.
    """
    _check_lengths(table, feeds)
    feeds = _with_texts(feeds)
    owners: list[Level | None] = []
    for feed in feeds:
        if feed.owner not in owners:
            owners.append(feed.owner)
    sources: list[Source] = []
    for owner in owners:
        fed = [feed.stream for feed in feeds if feed.owner is owner]
        where = table if owner is None or owner.table is None else owner.table
        own_plan = plan if owner is None else owner.plan
        if own_plan is None:
            raise where.error("arrivals", 'are missing; say when requests come, such as arrivals = "poisson:rate=2"')
        # The run's total says how much a closed loop sends only where there is no other source.
        total = num_requests if len(owners) == 1 else None
        source = to_source(owner.who.name if owner else "top", own_plan, fed, total)
        if source is None:
            raise where.error("arrivals", "in a closed loop need an end: give num_requests, or requests_per_user")
        sources.append(source)
    return sources


def _check_lengths(table: Table, feeds: Sequence[Feed]) -> None:
    """Raises `BadSetting` for a stream whose requests nobody gave a length."""
    for feed in feeds:
        sessions = feed.settings.sessions
        if feed.settings.pairs is None and not (sessions and sessions.recorded):
            names = [name for name in (feed.stream.profile.tenant, feed.stream.profile.traffic_class) if name]
            who = f" for {' / '.join(names)}" if names else ""
            raise table.error("lengths", f"are missing{who}; such as lengths = {{prompt = 512, output = 128}}")


def _with_texts(feeds: Sequence[Feed]) -> Sequence[Feed]:
    """The same streams, taking their prompts from the file that the top names, if it names one."""
    texts = feeds[0].settings.texts
    if texts is None:
        return feeds
    num_texts = len(texts.read())
    return [replace(feed, stream=replace(feed.stream, num_texts=num_texts)) for feed in feeds]
