"""The fields that may stand at the top, in a class and in a tenant alike."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace

from headway.core import Slo
from headway.workload.behaviour import Behaviour
from headway.workload.lengths import Fixed
from headway.workload.pairs import Independent, Pairs
from headway.workload.shared import SystemPrompts
from headway.workload.spec_sessions import SessionPlan
from headway.workload.streams import DEFAULT_BLOCK, Profile, Stream
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
