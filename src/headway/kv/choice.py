"""Prefix caches by name."""

from __future__ import annotations

from headway.errors import BadSetting
from headway.kv.hashed import HashedPrefixCache
from headway.kv.prefix import NoPrefixCache, PrefixCache
from headway.kv.radix import RadixPrefixCache


def make_prefix_cache(name: str, block_size: int) -> PrefixCache:
    """A new prefix cache: `hashed`, `radix` or `none`. Raises `BadSetting` for another name."""
    match name:
        case "hashed":
            return HashedPrefixCache(block_size)
        case "radix":
            return RadixPrefixCache(block_size)
        case "none":
            return NoPrefixCache()
        case _:
            raise BadSetting(f"prefix_cache is {name!r}; it must be one of hashed, radix, none")
