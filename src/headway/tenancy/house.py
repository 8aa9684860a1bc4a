"""All tenants of a server: who is calling, what they may do, and the file read again while serving."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

from headway.clock import Clock, WallClock
from headway.core import Tier
from headway.errors import BadSetting, Forbidden
from headway.tenancy.gate import Gate
from headway.tenancy.keys import KeyRing
from headway.tenancy.roster import Roster
from headway.tenancy.tenant import OPEN_TENANT, Tenant

OPEN_ROSTER = Roster({OPEN_TENANT: Tenant(name=OPEN_TENANT, may_ask_priority=True)})
"""Where no file names tenants there is one, without limits, that everybody is."""


class House:
    """The tenants of one server. `gate` counts what they use. Reading the file again replaces all or nothing."""

    def __init__(self, roster: Roster = OPEN_ROSTER, *, path: Path | None = None, clock: Clock | None = None) -> None:
        self.path = path
        self.gate = Gate((clock or WallClock()).now)
        self._secret = secrets.token_bytes(32)
        self._roster = roster
        self._ring = KeyRing(roster.tenants.values())

    @classmethod
    def open(cls, path: Path | None) -> House:
        """The house of a file, or the open one without. Raises `BadSetting`."""
        return cls() if path is None else cls(Roster.read(path), path=path)

    @property
    def is_open(self) -> bool:
        """Whether no file names tenants: then nobody needs one of their keys."""
        return self.path is None

    @property
    def tenants(self) -> Mapping[str, Tenant]:
        """All tenants by name, as the file has them now."""
        return self._roster.tenants

    def num_running(self) -> dict[str, int]:
        """Requests in the engine, by tenant."""
        return {name: self.gate.num_running(tenant) for name, tenant in self.tenants.items()}

    def owner(self, key: bytes) -> Tenant | None:
        """Whose key this is; None where nobody's, or no more."""
        return self._ring.owner(key, datetime.now(UTC))

    def reload(self) -> Roster:
        """Read the file again; effective for the next request. Raises `BadSetting` and changes nothing for a bad one.

        Counts survive: a tenant that used up its rate has not got a new one. Those who are gone finish what runs.
        """
        if self.path is None:
            raise BadSetting("this server has no tenants file to read again; start it with --tenants FILE")
        roster = Roster.read(self.path)
        ring = KeyRing(roster.tenants.values())
        self.gate.adopt(list(roster.tenants.values()))
        self._roster, self._ring = roster, ring
        return roster

    def salt(self, tenant: Tenant, given: str) -> str:
        """The cache salt of a request. Nobody can name another's: it depends on a secret of this process.

        `given` is what the client asked for; it separates further, and never joins. Tenants of one cache group share.
        """
        if tenant.name == OPEN_TENANT:
            return given
        world = f"tenant {tenant.name}" if tenant.cache_group is None else f"group {tenant.cache_group}"
        text = f"{len(world)} {world} {given}".encode("utf-8", "surrogatepass")
        return hmac.new(self._secret, text, hashlib.sha256).hexdigest()


def tier_of(tenant: Tenant, wanted: str | None) -> Tier:
    """The tier that a request runs in. `auto`, `default` and nothing mean the tenant's own. Raises `Forbidden`."""
    own = tenant.service_class.tier
    match wanted:
        case "flex":
            return Tier.FLEX
        case "priority" if not tenant.may_ask_priority:
            raise Forbidden(
                "service_tier priority is not granted to this key; use default or flex", param="service_tier"
            )
        case "priority":
            return Tier.PRIORITY
        case _:
            return own
