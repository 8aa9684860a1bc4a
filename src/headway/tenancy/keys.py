"""API keys: drawn at random, kept as hashes, found without telling by the time it took."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Iterable
from datetime import datetime

from headway.tenancy.tenant import Key, Tenant

PREFIX = "hw-"


def new_key() -> str:
    """A fresh key with 256 random bits. Because it cannot be guessed, a plain SHA-256 of it is safe to keep."""
    return PREFIX + secrets.token_urlsafe(32)


def digest(key: bytes) -> bytes:
    """What is kept of a key."""
    return hashlib.sha256(key).digest()


class KeyRing:
    """Finds the owner of a key.

    Keys are looked up by an HMAC of their hash under a secret of this ring. Where in the table a lookup ends, and so
    how long it takes, depends on bytes that no caller can know or steer, and it does not grow with the number of keys.
    """

    def __init__(self, tenants: Iterable[Tenant]) -> None:
        self._secret = secrets.token_bytes(32)
        self._owners = {self._place(key.sha256): (tenant, key) for tenant in tenants for key in tenant.keys}

    def __len__(self) -> int:
        return len(self._owners)

    def owner(self, key: bytes, now: datetime) -> Tenant | None:
        """The tenant that a key opens the door for; None for an unknown key and an expired one."""
        found: tuple[Tenant, Key] | None = self._owners.get(self._place(digest(key)))
        return found[0] if found is not None and found[1].is_valid(now) else None

    def _place(self, sha256: bytes) -> bytes:
        return hmac.digest(self._secret, sha256, "sha256")
