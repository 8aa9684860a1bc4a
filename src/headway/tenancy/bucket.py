"""Token bucket: a steady rate with a bounded burst."""

from __future__ import annotations


class Bucket:
    """Refills at `per_minute`, up to `burst`; starts full. Moments are seconds on a clock that never goes back.

    What is taken must have been asked for with `wait_s` at the same moment. The level may fall below zero: a charge
    that is larger than the burst, or corrected upwards afterwards, is a debt that later requests wait for.
    """

    def __init__(self, per_minute: float, burst: float, now_s: float) -> None:
        self._per_second = per_minute / 60.0
        self._burst = float(burst)
        self._level = self._burst
        self._at_s = now_s

    def level(self, now_s: float) -> float:
        """What can be taken at once."""
        self._refill(now_s)
        return self._level

    def full_in_s(self, now_s: float) -> float:
        """Seconds until it is full, if nothing is taken."""
        self._refill(now_s)
        return (self._burst - self._level) / self._per_second

    def wait_s(self, amount: float, now_s: float) -> float:
        """Seconds until `amount` may be taken; 0 now. More than the burst may be taken when the bucket is full."""
        self._refill(now_s)
        missing = min(amount, self._burst) - self._level
        # A billionth more or less is rounding, and nobody should wait for that.
        return 0.0 if missing <= 1e-9 * self._burst else missing / self._per_second

    def take(self, amount: float) -> None:
        """Charge; negative to correct an earlier charge downwards."""
        self._level = min(self._burst, self._level - amount)

    def resize(self, per_minute: float, burst: float, now_s: float) -> None:
        """Go on under other limits with what is there, at most the new burst."""
        self._refill(now_s)
        if burst > self._burst:
            self._level += burst - self._burst
        self._per_second, self._burst = per_minute / 60.0, float(burst)
        self._level = min(self._level, self._burst)

    def _refill(self, now_s: float) -> None:
        passed_s = max(0.0, now_s - self._at_s)
        self._level = min(self._burst, self._level + passed_s * self._per_second)
        self._at_s = max(self._at_s, now_s)
