"""Changes to a tenants file that leave everything else in it as it was, comments included."""

from __future__ import annotations

import os
import re
import tempfile
from datetime import UTC, date, datetime
from pathlib import Path

from headway.errors import BadSetting
from headway.tenancy.keys import digest, new_key
from headway.tenancy.roster import Roster

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}", re.ASCII)


def add_key(path: Path, tenant: str, key_id: str | None = None, expires: date | None = None) -> tuple[str, str]:
    """Append a fresh key for a tenant; its id, and the key itself, which is kept nowhere. Raises `BadSetting`.

    The file is replaced as a whole or not at all. A tenant that it does not name yet is added, without limits of its
    own; a file that is not there yet is made, readable by its owner only.
    """
    for what, name in (("tenant", tenant), ("key id", key_id)):
        if name is not None and not _NAME.fullmatch(name):
            raise BadSetting(f"{what} {name[:80]!r} must be 1 to 64 letters, digits, dots, dashes or underscores")
    text = _text(path)
    tenants = Roster.parse(text, str(path)).tenants if text.strip() else {}
    key = new_key()
    chosen = key_id or _free_id(tenant, {key.id for known in tenants.values() for key in known.keys})
    lines = [] if tenant in tenants else [f"[tenants.{_quoted(tenant)}]", ""]
    lines += [f"[[tenants.{_quoted(tenant)}.keys]]", f'id = "{chosen}"', f'sha256 = "{digest(key.encode()).hex()}"']
    lines += [f"created = {datetime.now(UTC):%Y-%m-%d}"]
    lines += [] if expires is None else [f"expires = {expires.isoformat()}"]
    new = "\n".join([*([text.rstrip("\n"), ""] if text.strip() else []), *lines])
    try:
        Roster.parse(new + "\n", str(path))
    except BadSetting as error:
        if "is not TOML" not in str(error):
            raise
        raise BadSetting(
            f"{path}: cannot add a key of {tenant!r} below; write its keys as [[tenants.{tenant}.keys]] tables"
        ) from None
    _replace(path, new + "\n")
    return chosen, key


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8") if path.exists() else ""
    except (OSError, UnicodeDecodeError) as error:
        raise BadSetting(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from None


def _quoted(name: str) -> str:
    """A name as one TOML key: a dot in it would make two."""
    return f'"{name}"' if "." in name else name


def _free_id(tenant: str, taken: set[str]) -> str:
    return next(name for number in range(1, len(taken) + 2) if (name := f"{tenant}-{number}") not in taken)


def _replace(path: Path, text: str) -> None:
    """Write beside the file, then take its place: a reader sees the old one or the new one, whole."""
    target = path.resolve()
    try:
        mode = target.stat().st_mode & 0o777 if target.exists() else 0o600
        with tempfile.NamedTemporaryFile("w", encoding="utf-8", dir=target.parent, delete=False) as beside:
            beside.write(text)
            beside.flush()
            os.fsync(beside.fileno())
        Path(beside.name).chmod(mode)
        Path(beside.name).replace(target)
    except OSError as error:
        raise BadSetting(f"cannot write {path}: {error.strerror or error}") from None
