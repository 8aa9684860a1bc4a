"""Who may use a server and how much: tenants, keys, limits, usage.

Knows neither HTTP nor the engine: it judges what it is told and counts what it hears. Start reading at `tenant`, then
`house`.
"""

from headway.tenancy.bucket import Bucket
from headway.tenancy.editing import add_key
from headway.tenancy.gate import Ask, Gate, Ticket
from headway.tenancy.house import House, tier_of
from headway.tenancy.keys import KeyRing, digest, new_key
from headway.tenancy.meter import Rate
from headway.tenancy.roster import Roster
from headway.tenancy.store import UsageStore, open_store
from headway.tenancy.tenant import OPEN_TENANT, Key, KvShare, Limits, ServiceClass, Tenant
from headway.tenancy.usage import Usage, UsageBook, UsageKey
from headway.tenancy.writer import PERIOD_S, UsageWriter

__all__ = [
    "OPEN_TENANT",
    "PERIOD_S",
    "Ask",
    "Bucket",
    "Gate",
    "House",
    "Key",
    "KeyRing",
    "KvShare",
    "Limits",
    "Rate",
    "Roster",
    "ServiceClass",
    "Tenant",
    "Ticket",
    "Usage",
    "UsageBook",
    "UsageKey",
    "UsageStore",
    "UsageWriter",
    "add_key",
    "digest",
    "new_key",
    "open_store",
    "tier_of",
]
