"""The tenants file: TOML in, tenants out, everything checked."""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from headway.core import unreadable
from headway.errors import BadSetting
from headway.tenancy.table import Table
from headway.tenancy.tenant import Key, KvShare, Limits, ServiceClass, Tenant

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}", re.ASCII)
_SHA256 = re.compile(r"[0-9a-f]{64}", re.ASCII)
_RATES = ("requests_per_minute", "tokens_per_minute")


@dataclass(frozen=True, slots=True)
class Roster:
    """All tenants by name, in the file's order."""

    tenants: Mapping[str, Tenant]

    @classmethod
    def read(cls, path: Path) -> Roster:
        """The roster of a file. Raises `BadSetting` with the place of the first mistake."""
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise unreadable(path, error) from None
        return cls.parse(text, str(path))

    @classmethod
    def parse(cls, text: str, where: str = "the tenants file") -> Roster:
        """The roster of a TOML text. Raises `BadSetting`."""
        try:
            document = tomllib.loads(text)
        except (ValueError, RecursionError) as error:
            raise BadSetting(f"{where} is not TOML: {error}") from None
        try:
            return cls(_tenants(document))
        except BadSetting as error:
            raise BadSetting(f"{where}: {error}") from None


def _tenants(document: dict[str, Any]) -> dict[str, Tenant]:
    top = Table("", document)
    shared = top.table("defaults")
    defaults = _limits(shared, Limits())
    shared.end()
    entries = top.tables("tenants")
    top.end()
    if not entries:
        raise BadSetting("there is no tenant; write at least one table [tenants.NAME]")
    tenants = {name: _tenant(name, entry, defaults) for name, entry in entries.items()}
    _check_together(tenants)
    return tenants


def _tenant(name: str, table: Table, defaults: Limits) -> Tenant:
    if not _NAME.fullmatch(name):
        raise BadSetting(
            f"tenant {name[:80]!r} must have a name of 1 to 64 letters, digits, dots, dashes or underscores"
        )
    models = table.texts("models")
    tenant = Tenant(
        name=name,
        weight=table.positive("weight", 1.0) or 1.0,
        service_class=ServiceClass(table.choice("class", list(ServiceClass), ServiceClass.INTERACTIVE)),
        is_admin=table.flag("admin"),
        may_ask_priority=table.flag("priority_tier"),
        models=None if models is None else frozenset(models),
        cache_group=table.text("cache_group"),
        limits=_limits(table, defaults),
        class_limits={_service_class(part): _own_limits(part) for part in table.tables("per_class").values()},
        model_limits={model: _own_limits(part) for model, part in table.tables("per_model").items()},
        kv=KvShare(guaranteed=table.share("kv_guaranteed", 0.0), most=table.share("kv_most", 1.0)),
        keys=tuple(_key(row, name, place) for place, row in enumerate(table.rows("keys"), 1)),
    )
    table.end()
    if tenant.kv.guaranteed > tenant.kv.most:
        raise BadSetting(f"{table.where}: kv_guaranteed is {tenant.kv.guaranteed:g}, above kv_most {tenant.kv.most:g}")
    if tenant.kv.most == 0:
        raise BadSetting(f"{table.where}.kv_most is 0; a tenant without blocks could run nothing")
    return tenant


def _service_class(table: Table) -> ServiceClass:
    word = table.where.rpartition(".")[2]
    if word not in list(ServiceClass):
        raise BadSetting(f"{table.where}: there is no class {word!r}; known: {', '.join(ServiceClass)}")
    return ServiceClass(word)


def _own_limits(table: Table) -> Limits:
    limits = _limits(table, Limits())
    table.end()
    return limits


def _limits(table: Table, defaults: Limits) -> Limits:
    """The limits of a table; what it does not say is as in `defaults`."""
    given: dict[str, Any] = {
        field.name: table.positive(field.name) if field.name in _RATES else table.count(field.name)
        for field in fields(Limits)
    }
    for rate, burst in zip(_RATES, ("request_burst", "token_burst"), strict=True):
        if given[burst] is not None and given[rate] is None and getattr(defaults, rate) is None:
            raise BadSetting(f"{table.where}.{burst} needs {rate}")
        if given[rate] is not None and given[burst] is None:
            defaults = replace(defaults, **{burst: None})  # a burst that belongs to another rate
    return replace(defaults, **{name: value for name, value in given.items() if value is not None})


def _key(table: Table, tenant: str, place: int) -> Key:
    digest = (table.text("sha256") or "").lower()
    if not _SHA256.fullmatch(digest):
        raise BadSetting(f"{table.where}.sha256 must be 64 hexadecimal digits; `headway tenants add-key` writes them")
    key = Key(id=table.text("id") or f"{tenant}-{place}", sha256=bytes.fromhex(digest), expires=table.moment("expires"))
    table.moment("created")  # for people
    table.end()
    return key


def _check_together(tenants: Mapping[str, Tenant]) -> None:
    if (guaranteed := sum(tenant.kv.guaranteed for tenant in tenants.values())) > 1.0 + 1e-9:
        raise BadSetting(f"kv_guaranteed of all tenants adds up to {guaranteed:g}; there is only 1 to share")
    for what, counts in (
        ("key", Counter(key.sha256 for tenant in tenants.values() for key in tenant.keys)),
        ("key id", Counter(key.id for tenant in tenants.values() for key in tenant.keys)),
    ):
        if twice := next((entry for entry, times in counts.items() if times > 1), None):
            shown = f"{twice!r} " if isinstance(twice, str) else ""
            raise BadSetting(f"{what} {shown}stands in the file twice; each must have one place")
