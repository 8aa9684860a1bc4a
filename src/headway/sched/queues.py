"""The queues: each sequence stands in exactly one."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from headway.core import Place, Request, Sequence


@dataclass(slots=True, eq=False)
class Family:
    """A request with its sequences; children join when the prompt is computed."""

    request: Request
    members: list[Sequence] = field(default_factory=list)
    num_cached: int = 0

    @property
    def is_over(self) -> bool:
        """Whether every choice has ended."""
        return all(seq.place is Place.GONE for seq in self.members)


class Queues:
    """Waiting, running, swapped and ended sequences, and the requests they belong to."""

    def __init__(self) -> None:
        self.waiting: deque[Sequence] = deque()
        self.running: list[Sequence] = []
        self.swapped: list[Sequence] = []
        self.ended: list[Sequence] = []
        self.families: dict[str, Family] = {}
        self._num_opened = 0

    def open(self, request: Request) -> Sequence:
        """Queue a new request; its first sequence stands for all its choices."""
        assert request.id not in self.families, f"request {request.id} is queued already"
        seq = Sequence(request, rank=self._num_opened, num_branches=request.params.n)
        self._num_opened += 1
        self.families[request.id] = Family(request, [seq])
        self.waiting.append(seq)
        return seq

    def join(self, seq: Sequence, parent: Sequence) -> None:
        """Add a fork of `parent`, running, behind it and its other forks."""
        family = self.families[seq.request.id]
        family.members.append(seq)
        seq.place = Place.RUNNING
        self.running.insert(self.running.index(parent) + len(family.members) - 1, seq)

    def move(self, seq: Sequence, place: Place) -> None:
        """Take a sequence out of its queue and put it at the end of another."""
        self._leave(seq)
        seq.place = place
        match place:
            case Place.WAITING:
                self.waiting.append(seq)
            case Place.RUNNING:
                self.running.append(seq)
            case Place.SWAPPED:
                self.swapped.append(seq)
            case Place.ENDED:
                self.ended.append(seq)
            case Place.GONE:
                pass

    def move_to_front(self, seq: Sequence) -> None:
        """Take a sequence out of its queue and make it the first to wait."""
        self._leave(seq)
        seq.place = Place.WAITING
        self.waiting.appendleft(seq)

    def close(self, request_id: str) -> Family:
        """Forget a request whose choices are all gone."""
        return self.families.pop(request_id)

    @property
    def is_empty(self) -> bool:
        """Whether no request is left."""
        return not self.families

    def _leave(self, seq: Sequence) -> None:
        match seq.place:
            case Place.WAITING if self.waiting[0] is seq:  # the usual case, and much the cheapest
                self.waiting.popleft()
            case Place.WAITING:
                self.waiting.remove(seq)
            case Place.RUNNING:
                self.running.remove(seq)
            case Place.SWAPPED:
                self.swapped.remove(seq)
            case Place.ENDED:
                self.ended.remove(seq)
            case Place.GONE:
                raise AssertionError(f"{seq.id} is gone and cannot move")

    def check(self) -> None:
        """Every live sequence stands in the queue that its place names, once, and belongs to a request."""
        queues = {
            Place.WAITING: list(self.waiting),
            Place.RUNNING: self.running,
            Place.SWAPPED: self.swapped,
            Place.ENDED: self.ended,
        }
        standing = [(place, seq) for place, queue in queues.items() for seq in queue]
        assert all(seq.place is place for place, seq in standing), "a sequence stands in the wrong queue"
        ids = [seq.id for _, seq in standing]
        assert len(set(ids)) == len(ids), "a sequence stands in two queues"
        live = {seq.id for family in self.families.values() for seq in family.members if seq.place is not Place.GONE}
        assert live == set(ids), f"queues and requests disagree: {live ^ set(ids)}"
        for _, seq in standing:
            seq.check()
