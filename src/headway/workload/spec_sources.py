"""The `arrivals` and `trace` tables: from streams to sources."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headway.workload.arrivals import Arrivals, Replay
from headway.workload.context import Context
from headway.workload.durations import Durations
from headway.workload.laws import ARRIVALS, SECONDS, expand, read_durations, read_law
from headway.workload.rules import choice, number, text, whole
from headway.workload.servegen import ClientMix, read_clients
from headway.workload.sources import ClosedSource, OpenSource, ReplaySource, Source
from headway.workload.spec_lengths import SCALE, read_file
from headway.workload.streams import Stream
from headway.workload.table import Table

CLOSED = "closed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Users:
    """A closed loop as specified; `num_each` requests per user, None where the run's total decides."""

    num_users: int
    num_each: int | None = None
    think: Durations | None = None
    ramp_s: float = 0.0


Plan = Arrivals | Users


def read_plan(table: Table) -> Plan | None:
    """The `arrivals` table or text, None where it is not given. Raises `BadSetting`."""
    value = table.raw("arrivals")
    if value is None:
        return None
    content = expand(value, "process")
    if content is None:
        raise table.error("arrivals", f'is {value!r}; it must be a table, or a text such as "poisson:rate=2"')
    inner = table.inner("arrivals", content)
    plan: Plan
    if content.get("process") == CLOSED:
        inner.need("process", choice(CLOSED))
        plan = Users(
            num_users=inner.need("users", whole(1, 1_000_000)),
            num_each=inner.take("requests_per_user", whole(1, 10_000_000)),
            think=read_durations(inner, "think_s"),
            ramp_s=inner.take("ramp_s", SECONDS) or 0.0,
        )
    else:
        plan = read_law(inner, ARRIVALS, "process", also=(CLOSED,))
    inner.done()
    return plan


def to_source(name: str, plan: Plan, streams: Sequence[Stream], num_requests: int | None) -> Source | None:
    """The source that feeds `streams`; None for a closed loop of which nobody says how much it sends."""
    if not isinstance(plan, Users):
        return OpenSource(name=name, arrivals=plan, streams=streams)
    num_each = plan.num_each or (-(-num_requests // plan.num_users) if num_requests else None)
    if num_each is None:
        return None
    return ClosedSource(
        name=name, num_users=plan.num_users, num_each=num_each, streams=streams, think=plan.think, ramp_s=plan.ramp_s
    )


def read_recorded(
    table: Table, context: Context, plan: Plan | None, template: Stream, streams: Sequence[Stream]
) -> Source | None:
    """The source of what was recorded elsewhere: `trace` or `servegen`. None for neither. Raises `BadSetting`."""
    mixed, replay = _read_mix(table, context, template), _read_replay(table, context, plan, template, streams)
    if mixed and (replay or plan):
        raise table.error("servegen", "brings its own arrivals; remove trace and arrivals")
    return mixed or replay


def _read_mix(table: Table, context: Context, template: Stream) -> ClientMix | None:
    """The `servegen` table: the clients of a provider."""
    inner = table.table("servegen")
    if inner is None:
        return None
    clients = read_clients(context.folder / inner.need("rates", text), context.folder / inner.need("lengths", text))
    mixed = ClientMix(
        clients=clients[: inner.take("clients", whole(1, 1_000_000))],
        template=template,
        start_s=inner.take("start_s", SECONDS) or 0.0,
        rate_scale=inner.take("rate_scale", number(1e-6, 1e6)) or 1.0,
    )
    inner.done()
    return mixed


def _read_replay(
    table: Table, context: Context, plan: Plan | None, template: Stream, streams: Sequence[Stream]
) -> ReplaySource | None:
    """The `trace` table: recorded requests, sent again. None where it is not given.

    `streams` tell what the tenants and classes were promised, `template` everybody's habits.
    """
    inner = table.table("trace")
    if inner is None:
        return None
    trace = read_file(inner, "file", context)
    time_scale, repeats = inner.take("time_scale", SCALE) or 1.0, inner.take("repeats", whole(1, 1_000_000)) or 1
    if isinstance(plan, Users):
        raise inner.error("file", "is replayed at its own times or at those of an open process, not in a closed loop")
    if plan is None and not trace.has_times:
        drawn = "sessions" if trace.has_sessions else "lengths"
        way_out = f"give arrivals, such as --rate 4 --num-requests 100, or draw from it: {drawn}.trace, with arrivals"
        raise inner.error("file", f"has no times to replay; {way_out}")
    moments_s = [row.at_s or 0.0 for row in trace.rows]
    source = ReplaySource(
        name="trace",
        trace=trace,
        arrivals=plan or Replay(moments_s=moments_s, time_scale=time_scale, repeats=repeats),
        template=template,
        profiles={(who.tenant, who.traffic_class): who for who in (traffic.profile for traffic in streams)},
        prompt_scale=inner.take("prompt_scale", SCALE) or 1.0,
        output_scale=inner.take("output_scale", SCALE) or 1.0,
    )
    inner.done()
    return source
