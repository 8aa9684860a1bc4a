"""Multi-level feedback queues, and when a job in them will run next (FastServe, arXiv 2305.05920; ALGORITHMS §5)."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from enum import StrEnum
from math import inf


class Demote(StrEnum):
    """When a job falls a level, and where an unfinished job rejoins."""

    PAPER = "paper"  # once its quantum is used up; at the back
    REPO = "repo"  # once its quantum is exceeded; at the front


@dataclass(slots=True, eq=False)
class _Job:
    """One sequence's standing. `used_s` is the time that it ran in its level, `last_s` when it last ran."""

    level: int
    last_s: float
    used_s: float = 0.0


class FeedbackQueues:
    """Levels 0 (served first) to `num_levels` - 1 with quanta `first_quantum` × `ratio`^level.

    A job stays in its queue while it runs; `ran` books the time and puts it back. Times are seconds, or
    units in a tape.
    """

    def __init__(self, first_quantum: float, ratio: float, num_levels: int, demote: Demote) -> None:
        self.quanta = [first_quantum * ratio**level for level in range(num_levels)]
        self._demote = demote
        self._queues: list[OrderedDict[str, _Job]] = [OrderedDict() for _ in self.quanta]
        self._jobs: dict[str, _Job] = {}

    def __contains__(self, seq_id: object) -> bool:
        return seq_id in self._jobs

    def __iter__(self) -> Iterator[str]:
        """Sequence ids in the order in which they should run."""
        for queue in self._queues:
            yield from queue

    def level(self, seq_id: str) -> int:
        """Which queue a job stands in."""
        return self._jobs[seq_id].level

    def join(self, seq_id: str, now_s: float, first_run: float) -> None:
        """A new job enters the highest level whose quantum covers its first run, or the lowest; at its back."""
        fits = (level for level, quantum in enumerate(self.quanta) if quantum >= first_run)
        job = _Job(next(fits, len(self.quanta) - 1), now_s)
        self._jobs[seq_id] = self._queues[job.level][seq_id] = job

    def leave(self, seq_id: str) -> None:
        """Forget a job that ended; unknown ones are left alone."""
        if (job := self._jobs.pop(seq_id, None)) is not None:
            del self._queues[job.level][seq_id]

    def ran(self, seq_id: str, elapsed: float, now_s: float) -> None:
        """Book a run that ended now; the job falls a level if its quantum is spent, and rejoins its queue."""
        job = self._jobs[seq_id]
        job.used_s += elapsed
        job.last_s = now_s
        quantum = self.quanta[job.level]
        is_spent = job.used_s >= quantum if self._demote is Demote.PAPER else job.used_s > quantum
        level = min(job.level + 1, len(self.quanta) - 1) if is_spent else job.level
        self._move(seq_id, level, 0.0 if is_spent else job.used_s)
        if self._demote is Demote.REPO:
            self._queues[level].move_to_end(seq_id, last=False)

    def promote(self, now_s: float, after: float) -> list[str]:
        """Jobs below the top that have not run for `after` go to its front; returns them, the first moved first."""
        starved = [seq_id for queue in self._queues[1:] for seq_id, job in queue.items() if now_s - job.last_s >= after]
        for seq_id in starved:
            self._move(seq_id, 0, 0.0)
            self._queues[0].move_to_end(seq_id, last=False)
        return starved

    def next_runs(
        self, seq_ids: Collection[str], now_s: float, *, after: float, max_batch_size: int
    ) -> dict[str, float]:
        """Estimated time until each of these jobs runs next (ENST).

        The lesser of the time until it is promoted and the time until all jobs of higher levels have sunk to
        its own, which they do `max_batch_size` at a time. `after` infinite: nobody is promoted.
        """
        sunk = [0.0] * len(self.quanta)  # work until all of the levels above have come down to this one
        num_above = 0
        for level in range(1, len(self.quanta)):
            num_above += len(self._queues[level - 1])
            sunk[level] = sunk[level - 1] + num_above * self.quanta[level - 1]
        return {
            seq_id: min(after - (now_s - job.last_s) if after < inf else inf, sunk[job.level] / max_batch_size)
            for seq_id in seq_ids
            for job in [self._jobs[seq_id]]
        }

    def check(self) -> None:
        """Every job stands in the queue of its level, and in no other."""
        standing = {seq_id: job for queue in self._queues for seq_id, job in queue.items()}
        assert standing.keys() == self._jobs.keys(), "queues and jobs disagree"
        assert sum(map(len, self._queues)) == len(standing), "a job stands in two queues"
        for level, queue in enumerate(self._queues):
            assert all(job.level == level for job in queue.values()), f"a job of level {level} stands elsewhere"

    def _move(self, seq_id: str, level: int, used_s: float) -> None:
        job = self._jobs[seq_id]
        del self._queues[job.level][seq_id]
        job.level, job.used_s = level, used_s
        self._queues[level][seq_id] = job
