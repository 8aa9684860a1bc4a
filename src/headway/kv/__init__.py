"""Memory for keys and values, as block ids: who holds which, what is shared, what is found again.

Must not know: tensors, devices, policies, time; standard library and `core` only.
Start reading at `cache`, then `holdings`; `ledger` is what policies plan with.
"""

from headway.kv.cache import KVCache
from headway.kv.choice import make_prefix_cache
from headway.kv.hashed import HashedPrefixCache
from headway.kv.holdings import Holdings, Stats
from headway.kv.ledger import Ledger
from headway.kv.pool import BlockPool
from headway.kv.prefix import Hit, NoPrefixCache, PrefixCache
from headway.kv.radix import RadixPrefixCache

__all__ = [
    "BlockPool",
    "HashedPrefixCache",
    "Hit",
    "Holdings",
    "KVCache",
    "Ledger",
    "NoPrefixCache",
    "PrefixCache",
    "RadixPrefixCache",
    "Stats",
    "make_prefix_cache",
]
