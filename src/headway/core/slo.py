"""What a client expects of one request's times."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Slo:
    """Limits that a request must meet, in seconds; None where nothing is promised."""

    ttft_s: float | None = None
    tpot_s: float | None = None
    e2e_s: float | None = None

    @property
    def is_empty(self) -> bool:
        """Whether nothing at all is promised."""
        return self.ttft_s is None and self.tpot_s is None and self.e2e_s is None
