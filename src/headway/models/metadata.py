"""Values of a file's metadata by key, each of its kind or refused with what stands there instead.

Serves GGUF metadata and the JSON files of Hugging Face folders alike; a key that is null is absent.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from headway.errors import BadModelFile


@dataclass(frozen=True, slots=True)
class Metadata:
    """A mapping of texts to anything, and the file it came from."""

    origin: str
    values: dict[str, Any]

    def text(self, key: str) -> str | None:
        """A text, None where there is none."""
        value = self.values.get(key)
        if value is not None and not isinstance(value, str):
            raise self.fault(key, "text")
        return value

    def flag(self, key: str) -> bool:
        """A truth value, false where there is none."""
        value = self.values.get(key)
        if value is not None and not isinstance(value, bool):
            raise self.fault(key, "true or false")
        return bool(value)

    def whole(self, key: str, default: int | None = None) -> int:
        """A whole number of 32 bits."""
        value = self._given(key, default)
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 1 << 32:
            raise self.fault(key, "a whole number")
        return value

    def real(self, key: str, default: float | None = None) -> float:
        """A real number that is written as one."""
        value = self._given(key, default)
        if not isinstance(value, float):
            raise self.fault(key, "a real number")
        return value

    def number(self, key: str, default: float | None = None) -> float:
        """A real number that may be written without a point."""
        value = self._given(key, default)
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise self.fault(key, "a number")
        return float(value)

    def fault(self, key: str, wanted: str) -> BadModelFile:
        """The refusal of the value under `key`."""
        return BadModelFile(f"{self.origin}: {key} is {repr(self.values.get(key))[:60]}, not {wanted}")

    def _given(self, key: str, default: object) -> object:
        value = self.values.get(key)
        if value is None:
            value = default
        if value is None:
            raise BadModelFile(f"{self.origin}: metadata has no {key}")
        return value
