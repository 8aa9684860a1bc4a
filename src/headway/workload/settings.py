"""The fields that may stand at the top, in a class and in a tenant alike."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, fields, replace

from headway.core import Slo
from headway.workload.behaviour import Behaviour
from headway.workload.context import Context
from headway.workload.laws import POSITIVE_S, read_durations, read_lengths
from headway.workload.lengths import Fixed
from headway.workload.pairs import Independent, Pairs
from headway.workload.rules import number, text, whole
from headway.workload.shared import SystemPrompts
from headway.workload.spec_lengths import read_pairs
from headway.workload.spec_prompts import DEFAULT_BLOCK, read_prompts
from headway.workload.spec_sessions import SessionPlan, read_sessions
from headway.workload.streams import Profile, Stream
from headway.workload.table import Table
from headway.workload.texts import Texts


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What one level says; None where it says nothing."""

    pairs: Pairs | None = None
    max_output: int | None = None
    prefix_block: int | None = None
    system: SystemPrompts | None = None
    texts: Texts | None = None
    sessions: SessionPlan | None = None
    behaviour: Behaviour | None = None
    slo: Slo | None = None
    priority: int | None = None
    deadline_s: float | None = None

    def under(self, other: Settings) -> Settings:
        """These, where `other` says nothing."""
        said = {part.name: getattr(other, part.name) for part in fields(other)}
        return replace(self, **{name: value for name, value in said.items() if value is not None})


@dataclass(frozen=True, slots=True, kw_only=True)
class Who:
    """A class or a tenant as specified."""

    name: str = ""
    share: float = 1.0
    weight: float = 1.0
    key: str = ""
    settings: Settings = field(default_factory=Settings)


def read_settings(table: Table, context: Context) -> Settings:
    """The shared fields of one level. Raises `BadSetting`."""
    prompts = read_prompts(table, context)
    pairs, max_output = read_pairs(table, context, prompts.texts)
    return Settings(
        pairs=pairs,
        max_output=max_output,
        prefix_block=prompts.prefix_block,
        system=prompts.system,
        texts=prompts.texts,
        sessions=read_sessions(table, context),
        behaviour=_read_behaviour(table),
        slo=read_slo(table),
        priority=table.take("priority", whole(-(2**31), 2**31)),
        deadline_s=table.take("deadline_s", POSITIVE_S),
    )


def read_who(table: Table, context: Context) -> Who:
    """A class or tenant; its arrivals are read by the caller. Raises `BadSetting`."""
    return Who(
        name=table.need("name", text),
        share=_or(table.take("share", number(1e-9, 1e9)), 1.0),
        weight=_or(table.take("weight", number(1e-6, 1e6)), 1.0),
        key=_read_key(table),
        settings=read_settings(table, context),
    )


def to_stream(settings: Settings, traffic_class: Who, tenant: Who) -> Stream:
    """The traffic of a class of a tenant. `settings` are all levels' together."""
    pairs = settings.pairs or Independent(prompt=Fixed(value=1), output=Fixed(value=1))
    profile = Profile(
        tenant=tenant.name,
        traffic_class=traffic_class.name,
        priority=settings.priority or 0,
        deadline_s=settings.deadline_s,
        slo=settings.slo or Slo(),
    )
    return Stream(
        profile=profile,
        pairs=pairs,
        share=traffic_class.share * tenant.share,
        max_output=settings.max_output or 0,
        system=settings.system,
        sessions=settings.sessions.rule(pairs) if settings.sessions else None,
        behaviour=settings.behaviour or Behaviour(),
        prefix_block=settings.prefix_block or DEFAULT_BLOCK,
    )


def read_slo(table: Table) -> Slo | None:
    """The `slo` table: ttft, tpot and e2e, each in `_s` or `_ms`. Raises `BadSetting`."""
    inner = table.table("slo")
    if inner is None:
        return None
    slo = Slo(ttft_s=_limit(inner, "ttft"), tpot_s=_limit(inner, "tpot"), e2e_s=_limit(inner, "e2e"))
    inner.done()
    return slo


def _limit(table: Table, name: str) -> float | None:
    in_s, in_ms = table.take(f"{name}_s", POSITIVE_S), table.take(f"{name}_ms", number(1e-3, 1e10))
    if in_s is not None and in_ms is not None:
        raise table.error(f"{name}_ms", f"is given and {name}_s as well; give one of them")
    return in_s if in_ms is None else in_ms / 1000


def _read_behaviour(table: Table) -> Behaviour | None:
    inner = table.table("behaviour")
    if inner is None:
        return None
    share = number(0, 1)
    behaviour = Behaviour(
        cancel_share=inner.take("cancel_share", share) or 0.0,
        cancel_tokens=read_lengths(inner, "cancel_after_tokens") if "cancel_after_tokens" in inner else None,
        cancel_after=read_durations(inner, "cancel_after_s"),
        slow_share=inner.take("slow_share", share) or 0.0,
        slow_tokens_s=inner.take("slow_tokens_s", number(1e-3, 1e6)) or 0.0,
        retries=inner.take("retries", whole(0, 100)) or 0,
        backoff_s=_or(inner.take("backoff_s", number(0, 3600)), 1.0),
    )
    inner.done()
    if behaviour.cancel_share and behaviour.cancel_tokens is None and behaviour.cancel_after is None:
        raise inner.error("cancel_share", "says how many give up; say when: cancel_after_tokens or cancel_after_s")
    if behaviour.slow_share and not behaviour.slow_tokens_s:
        raise inner.error("slow_share", "says how many read slowly; say how slowly: slow_tokens_s")
    return behaviour


def _read_key(table: Table) -> str:
    """A tenant's API key, given in place or as the name of an environment variable."""
    key, variable = table.take("key", text), table.take("key_env", text)
    if variable is None:
        return key or ""
    if variable not in os.environ:
        raise table.error("key_env", f"names the environment variable {variable}, which is not set")
    return os.environ[variable]


def _or(value: float | None, default: float) -> float:
    return default if value is None else value
