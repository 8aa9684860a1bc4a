"""A tenants file for tests, with keys that are known."""

import hashlib


def key_of(name):
    """The key of a test's tenant."""
    return f"hw-key-of-{name}"


def bearer(name):
    """Headers that show the key of a test's tenant."""
    return {"authorization": f"Bearer {key_of(name)}"}


def write_tenants(path, tenants, head=""):
    """Write a tenants file: names to the TOML lines of their tables. Each gets the key `key_of(name)`."""
    parts = [head]
    for name, lines in tenants.items():
        sha256 = hashlib.sha256(key_of(name).encode()).hexdigest()
        keys = f'[[tenants.{name}.keys]]\nid = "key-{name}"\nsha256 = "{sha256}"\n'
        parts.append(f"[tenants.{name}]\n{lines}\n{keys}")
    path.write_text("\n".join(parts))
    return path
