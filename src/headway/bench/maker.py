"""Which code on which processor made a run: runs of two makers differ for more reasons than their policies."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import headway

_CODE = (".py", ".so", ".pyd")
_DIGITS = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Maker:
    """A version of this package and the name of a processor; "" where an older log does not say."""

    code: str = ""
    processor: str = ""

    def __str__(self) -> str:
        return f"{self.code or 'unknown code'} on {self.processor or 'an unknown processor'}"


def code_version() -> str:
    """The package's version and, behind a plus, the beginning of a SHA-256 of its modules, compiled ones too."""
    digest = hashlib.sha256()
    files = {path.relative_to(root).as_posix(): path for root in map(Path, headway.__path__) for path in _code(root)}
    for name, path in sorted(files.items()):
        content = path.read_bytes()
        digest.update(f"{name} {len(content)}\n".encode())
        digest.update(content)
    return f"{headway.__version__}+{digest.hexdigest()[:_DIGITS]}"


def warning(makers: Iterable[Maker]) -> str:
    """What a reader must know of runs that were not all made by one; "" where they were."""
    counts = Counter(map(str, makers))
    if len(counts) < 2:
        return ""
    named = ", ".join(f"{number} by {maker}" for maker, number in counts.items())
    return f"These runs come from different code or processors: {named}."


def _code(root: Path) -> Iterable[Path]:
    return (path for path in root.rglob("*") if path.suffix in _CODE and path.is_file())
