"""Lulls: times in which nobody of a kind is let in, so that what `Retry-After` says comes true."""

from __future__ import annotations

from headway.core import Request, Tier


class Lulls:
    """After a refusal nobody like it is let in for a stated time, and then everybody until it is full again.

    Without that, the place that comes free goes to whoever asks in that moment: the time until one is let in is then
    a matter of luck, and no figure is within a factor of two of it for most. A lull holds for a tenant and a class,
    and for prompts of about the refused one's length or longer (what is full for a short one is full for a long one).
    Not safe from several threads.
    """

    def __init__(self) -> None:
        self._ends_s: dict[tuple[str, Tier], dict[int, float]] = {}

    def begin(self, request: Request, now_s: float, seconds: float) -> None:
        """Nobody like it for so long. What is over is forgotten."""
        for kind, ends_s in list(self._ends_s.items()):
            left = {size: end_s for size, end_s in ends_s.items() if end_s > now_s}
            if left:
                self._ends_s[kind] = left
            else:
                del self._ends_s[kind]
        self._ends_s.setdefault(_kind(request), {})[_size(request)] = now_s + seconds

    def left_s(self, request: Request, now_s: float) -> float:
        """Seconds until one like it may be let in; 0 where there is no lull for it."""
        ends_s = self._ends_s.get(_kind(request), {})
        return max((end_s - now_s for size, end_s in ends_s.items() if size <= _size(request)), default=0.0)


def _kind(request: Request) -> tuple[str, Tier]:
    return request.tenant, request.tier


def _size(request: Request) -> int:
    """The prompt's length to a factor of two."""
    return request.num_prompt.bit_length()
