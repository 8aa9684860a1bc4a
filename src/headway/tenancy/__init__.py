"""Who may use a server and how much: tenants, keys, limits, usage.

Knows neither HTTP nor the engine: it judges what it is told and counts what it hears. Start reading at `tenant`, then
`house`.
"""

from headway.tenancy.bucket import Bucket
from headway.tenancy.gate import Ask, Gate, Ticket
from headway.tenancy.house import House, tier_of
from headway.tenancy.keys import KeyRing, digest, new_key
from headway.tenancy.roster import Roster
from headway.tenancy.tenant import OPEN_TENANT, Key, KvShare, Limits, ServiceClass, Tenant

__all__ = [
    "OPEN_TENANT",
    "Ask",
    "Bucket",
    "Gate",
    "House",
    "Key",
    "KeyRing",
    "KvShare",
    "Limits",
    "Roster",
    "ServiceClass",
    "Tenant",
    "Ticket",
    "digest",
    "new_key",
    "tier_of",
]
