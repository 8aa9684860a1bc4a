"""Who may use a server, and how much of it: frozen records, checked where they are read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from headway.core import Tier

OPEN_TENANT = ""
"""The name of the one tenant that everybody is where no file names others."""


class ServiceClass(StrEnum):
    """What a tenant's requests are when they ask for no tier."""

    INTERACTIVE = "interactive"  # somebody waits for the answer
    BATCH = "batch"  # nobody does

    @property
    def tier(self) -> Tier:
        """The tier of requests that ask for none."""
        return Tier.FLEX if self is ServiceClass.BATCH else Tier.DEFAULT

    @staticmethod
    def of(tier: Tier) -> ServiceClass:
        """The class whose limits a tier counts against."""
        return ServiceClass.BATCH if tier is Tier.FLEX else ServiceClass.INTERACTIVE


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Most of each that may be used; None is no limit.

    Rates are per minute and refill steadily. A burst is what may be used at once after a pause; left out, it is one
    minute's worth. Tokens are those of prompt and output, cached ones included.
    """

    max_concurrent: int | None = None
    requests_per_minute: float | None = None
    request_burst: int | None = None
    tokens_per_minute: float | None = None
    token_burst: int | None = None
    max_input_tokens: int | None = None
    max_output_tokens: int | None = None

    @property
    def most_requests(self) -> int | None:
        """Requests that may come at once."""
        return _burst(self.request_burst, self.requests_per_minute)

    @property
    def most_tokens(self) -> int | None:
        """Tokens that may be used at once."""
        return _burst(self.token_burst, self.tokens_per_minute)


@dataclass(frozen=True, slots=True, kw_only=True)
class KvShare:
    """Shares of all KV blocks, 0 to 1: kept for the tenant whatever others do, and never exceeded by it."""

    guaranteed: float = 0.0
    most: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """What is known about one API key: never the key, only its SHA-256. `id` may stand in logs."""

    id: str
    sha256: bytes
    expires: datetime | None = None

    def is_valid(self, now: datetime) -> bool:
        """Whether it still opens the door at `now`."""
        return self.expires is None or now < self.expires


@dataclass(frozen=True, slots=True, kw_only=True)
class Tenant:
    """One customer, team or application. `models` None allows all. Tenants of one `cache_group` share prefixes."""

    name: str
    weight: float = 1.0
    service_class: ServiceClass = ServiceClass.INTERACTIVE
    is_admin: bool = False
    may_ask_priority: bool = False
    models: frozenset[str] | None = None
    cache_group: str | None = None
    limits: Limits = field(default_factory=Limits)
    class_limits: Mapping[ServiceClass, Limits] = field(default_factory=dict)
    model_limits: Mapping[str, Limits] = field(default_factory=dict)
    kv: KvShare = field(default_factory=KvShare)
    keys: tuple[Key, ...] = ()

    def allows(self, model: str) -> bool:
        """Whether requests may name this model."""
        return self.models is None or model in self.models

    def limits_for(self, service_class: ServiceClass, model: str) -> dict[str, Limits]:
        """Every limit that a request counts against, by where it is written; the tenant's own is the first."""
        found = {"": self.limits}
        if (of_class := self.class_limits.get(service_class)) is not None:
            found[f"class {service_class}"] = of_class
        if (of_model := self.model_limits.get(model)) is not None:
            found[f"model {model}"] = of_model
        return found

    def most_output(self, service_class: ServiceClass, model: str) -> int | None:
        """Most tokens of one answer."""
        limits = self.limits_for(service_class, model).values()
        return min((limit.max_output_tokens for limit in limits if limit.max_output_tokens is not None), default=None)


def _burst(stated: int | None, per_minute: float | None) -> int | None:
    if per_minute is None:
        return None
    return stated if stated is not None else max(1, round(per_minute))
