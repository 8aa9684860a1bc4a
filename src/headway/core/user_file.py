"""What to say of a file of the user's that cannot be read, and what to do where it is not there."""

from __future__ import annotations

import difflib
from pathlib import Path

from headway.errors import BadSetting

_MOST = 3
_NEAR = 0.75


def unreadable(path: Path, error: OSError | UnicodeDecodeError, what: str = "") -> BadSetting:
    """The error to raise, which for a missing file names those that may be meant. `what` is a word such as "trace"."""
    name = f"{what} {path}" if what else str(path)
    why = getattr(error, "strerror", None) or error
    way_out = f"; {_way_out(path)}" if isinstance(error, FileNotFoundError) else ""
    return BadSetting(f"cannot read {name}: {why}{way_out}")


def _way_out(path: Path) -> str:
    folder = path.absolute().parent
    try:
        names = sorted(entry.name for entry in folder.iterdir() if entry.is_file() and not entry.name.startswith("."))
    except OSError:
        return f"nor is there a folder {path.parent} that can be read; check the path, which begins at {Path.cwd()}"
    if near := difflib.get_close_matches(path.name, names, n=_MOST, cutoff=_NEAR):
        return f"did you mean {' or '.join(str(path.with_name(name)) for name in near)}?"
    alike = [name for name in names if Path(name).suffix == path.suffix]
    if not alike:
        return f"no file in {folder} ends in {path.suffix or 'nothing'}; check the path"
    more = f" and {len(alike) - _MOST} more" if len(alike) > _MOST else ""
    return f"{folder} has {', '.join(alike[:_MOST])}{more}"
