"""When each item of a workload is due: open arrivals in their order, sessions turn by turn."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterable, Iterator
from itertools import count
from math import inf

from headway.workload import WorkItem


class Agenda:
    """Hands out items at their moments, reading the workload no further than it must.

    An item with a moment of its own comes then. One without comes `think_s` after the item before it in its session
    has ended, or after the start if it is the session's first. Nothing is due from `until_s` on.
    """

    def __init__(self, items: Iterable[WorkItem], until_s: float = inf) -> None:
        self._until_s = until_s
        self._items: Iterator[WorkItem] = iter(items)
        self._due: list[tuple[float, int, WorkItem]] = []
        self._order = count()
        self._live: dict[str, int] = {}
        self._later: dict[str, deque[WorkItem]] = {}
        self._ended_s: dict[str, float] = {}
        self._read_on()

    @property
    def next_s(self) -> float:
        """The next item's moment; infinite when nothing is due before something ends."""
        return self._due[0][0] if self._due else inf

    def take(self) -> tuple[float, WorkItem]:
        """The next item and its moment."""
        at_s, _, item = heapq.heappop(self._due)
        if item.at_s is not None:
            self._read_on()
        return at_s, item

    def ended(self, item: WorkItem, at_s: float) -> bool:
        """An item's answer is complete: its session goes on, or is over (False)."""
        session = item.session
        if not session:
            return False
        self._live[session] -= 1
        later = self._later.get(session)
        if later:
            self._put(at_s + later[0].think_s, later.popleft())
        elif not self._live[session]:
            self._later.pop(session, None)
            del self._live[session]
            self._ended_s[session] = at_s
        return session in self._live

    def _read_on(self) -> None:
        """Read up to the next item with a moment of its own; what has none waits for its session."""
        for item in self._items:
            if item.at_s is not None:
                self._put(item.at_s, item)
                return
            if item.session in self._live:
                self._later.setdefault(item.session, deque()).append(item)
            else:
                self._put(self._ended_s.pop(item.session, 0.0) + item.think_s, item)

    def _put(self, at_s: float, item: WorkItem) -> None:
        if at_s >= self._until_s:
            return
        if item.session:
            self._live[item.session] = self._live.get(item.session, 0) + 1
        heapq.heappush(self._due, (at_s, next(self._order), item))
