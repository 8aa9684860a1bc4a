"""Who is calling: from the key that a request shows to a tenant, or to the door."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

from starlette.types import ASGIApp, Receive, Scope, Send

from headway.errors import Forbidden, HeadwayError
from headway.server.config import ServerConfig
from headway.server.faults import Unauthorized, fault_of
from headway.server.rates import telling_rates
from headway.tenancy import OPEN_TENANT, House, Tenant

OPEN_PATHS = frozenset({"/health", "/ready", "/ui"})
"""The live page itself shows nothing: what it draws comes from `/ui/feed`, which asks for a key as `/metrics` does."""

_CALLER = "headway.caller"
_NOBODY = Tenant(name=OPEN_TENANT, models=frozenset())
"""Whom an admin key belongs to where tenants are named: it manages, and generates nothing."""


class Need(IntEnum):
    """What a path asks of its callers."""

    NOTHING = 0
    KEY = 1
    ADMIN = 2


@dataclass(frozen=True, slots=True)
class Caller:
    """Whoever sent a request, once the door let it in."""

    tenant: Tenant
    is_admin: bool = False


def caller_of(scope: Scope) -> Caller:
    """Who sent this request."""
    caller: Caller = scope[_CALLER]
    return caller


class Access:
    """Lets in those who show a key that is enough for the path, and notes who they are.

    401 without a valid key, 403 where a valid one is not enough. `/health`, `/ready` and the empty page `/ui` are
    everybody's; `/metrics` and `/ui/feed` need what `metrics_access` says; `/admin` needs an admin. Where no key of any
    kind is configured, callers on this machine are admins; but no page of a browser is, wherever it came from.
    """

    def __init__(self, app: ASGIApp, *, house: House, config: ServerConfig) -> None:
        self._app, self._house = app, house
        self._root_path = config.root_path.rstrip("/")
        self._keys, self._admin_keys = _digests(config.api_keys), _digests(config.admin_keys)
        access = config.metrics_access or ("open" if house.is_open else "admin")
        self._figures = {"open": Need.NOTHING, "key": Need.KEY, "admin": Need.ADMIN}[access]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or answer it."""
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        try:
            scope[_CALLER] = self._admitted(scope, self._need(scope["path"].removeprefix(self._root_path)))
        except HeadwayError as error:
            return await fault_of(error).response(scope)(scope, receive, send)
        return await self._app(scope, receive, telling_rates(send, self._house, caller_of(scope).tenant))

    def _need(self, path: str) -> Need:
        if path in OPEN_PATHS:
            return Need.NOTHING
        match path.split("/")[1:2]:
            case ["metrics" | "ui"]:
                return self._figures
            case ["admin"]:
                return Need.ADMIN
            case _:
                return Need.KEY

    def _admitted(self, scope: Scope, need: Need) -> Caller:
        """The caller. Raises `Unauthorized` or `Forbidden`."""
        caller = self._caller(scope)
        if caller is None and need is Need.NOTHING:
            return Caller(_NOBODY)
        if caller is None:
            raise Unauthorized("no valid API key; send one as 'Authorization: Bearer KEY'")
        if need is Need.ADMIN and not caller.is_admin:
            raise Forbidden(
                "this needs an admin key"
                if self._has_keys
                else "without keys, management is for programs on the server's own machine; set --admin-api-key"
            )
        return caller

    def _caller(self, scope: Scope) -> Caller | None:
        key = _shown(scope)
        if key is not None and _is_among(key, self._admin_keys):
            return Caller(self._house.tenants.get(OPEN_TENANT, _NOBODY), is_admin=True)
        if not self._house.is_open:
            tenant = None if key is None else self._house.owner(key)
            return None if tenant is None else Caller(tenant, tenant.is_admin)
        if self._keys and (key is None or not _is_among(key, self._keys)):
            return None
        return Caller(self._house.tenants[OPEN_TENANT], is_admin=not self._has_keys and _is_local(scope))

    @property
    def _has_keys(self) -> bool:
        return bool(self._keys or self._admin_keys) or not self._house.is_open


def _digests(keys: Sequence[str]) -> list[bytes]:
    return [hashlib.sha256(key.encode()).digest() for key in keys]


def _is_among(key: bytes, known: Sequence[bytes]) -> bool:
    """Compares with every one, each in constant time: how long it takes tells nothing about any of them."""
    shown = hashlib.sha256(key).digest()
    matches = [hmac.compare_digest(shown, digest) for digest in known]
    return any(matches)


def _shown(scope: Scope) -> bytes | None:
    header = _header(scope, b"authorization")
    scheme, _, key = header.partition(b" ")
    return key.strip() if scheme.lower() == b"bearer" else None


def _header(scope: Scope, wanted: bytes) -> bytes:
    return next((value for name, value in scope["headers"] if name == wanted), b"")


def _is_local(scope: Scope) -> bool:
    """Whether a program on this machine sent it. A browser's page names its origin, and a rebound name its host."""
    if _header(scope, b"origin") or not _is_loopback((scope.get("client") or ("",))[0]):
        return False
    host = _header(scope, b"host").decode("latin-1")
    return host.partition(":")[0] == "localhost" or _is_loopback(_without_port(host))


def _without_port(host: str) -> str:
    return host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]


def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False
