"""Where requests come from: an open process, users in a closed loop, or a trace. Each yields visits by time."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from headway.workload.arrivals import Arrivals
from headway.workload.durations import Durations
from headway.workload.item import WorkItem
from headway.workload.seeds import stream
from headway.workload.shared import context_ids, mix, named
from headway.workload.streams import Profile, Stream, Visits
from headway.workload.traces import Trace, TraceRow

Visit = tuple[float, list[WorkItem]]  # the moment of its first request, and all of them


class Source(Protocol):
    """A source of visits, by time."""

    def visits(self, seed: int) -> Iterator[Visit]:
        """Visits in order of their moments; the items lack only ids."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenSource:
    """Visits at the moments of a process, whatever becomes of earlier ones, spread over streams by their shares."""

    name: str
    arrivals: Arrivals
    streams: Sequence[Stream]

    def visits(self, seed: int) -> Iterator[Visit]:
        """Visits in order of their moments, as endless as the process."""
        makers = [Visits(traffic, seed) for traffic in self.streams]
        cumulative = np.cumsum([traffic.share for traffic in self.streams])
        of_marks = stream(seed, "marks", self.name)
        for number, at_s in enumerate(self.arrivals.times(stream(seed, "arrivals", self.name))):
            mark = of_marks.random() * cumulative[-1]
            items = makers[int(np.searchsorted(cumulative, mark, side="right"))].next()
            session = f"{self.name}-{number}" if len(items) > 1 else ""
            yield (
                at_s,
                [replace(item, at_s=at_s if turn == 0 else None, session=session) for turn, item in enumerate(items)],
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class ClosedSource:
    """`num_users` users, each with one request in flight: the next goes out `think` after the last answer.

    They start spread evenly over `ramp_s` seconds. Each sends `num_each` requests; its stream is fixed, by shares.
    A user is a session: its requests follow each other by `turn`.
    """

    name: str
    num_users: int
    num_each: int
    streams: Sequence[Stream]
    think: Durations | None = None
    ramp_s: float = 0.0

    def visits(self, seed: int) -> Iterator[Visit]:
        """One visit per user: all that this user will send. Their moments are the users' starts."""
        makers = [Visits(traffic, seed) for traffic in self.streams]
        cumulative = np.cumsum([traffic.share for traffic in self.streams])
        of_think = stream(seed, "think", self.name)
        for user in range(self.num_users):
            place = (user + 0.5) / self.num_users * cumulative[-1]
            maker = makers[int(np.searchsorted(cumulative, place, side="right"))]
            start_s = user * self.ramp_s / self.num_users
            asked = itertools.islice(itertools.chain.from_iterable(iter(maker.next, None)), self.num_each)
            yield (
                start_s,
                [
                    replace(
                        item,
                        at_s=start_s if turn == 0 else None,
                        session=f"{self.name}-{user}",
                        turn=turn,
                        think_s=self._think_s(item, of_think) if turn else 0.0,
                    )
                    for turn, item in enumerate(asked)
                ],
            )

    def _think_s(self, item: WorkItem, rng: np.random.Generator) -> float:
        """A later turn of a conversation has its own pause; between two conversations it is the user's."""
        return item.think_s if item.turn or self.think is None else self.think.draw(rng)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplaySource:
    """The requests of a trace as recorded: lengths, tenants, sessions and shared prefixes.

    They come at the moments of `arrivals`, in the trace's order. `profiles` says by tenant and class what was promised;
    `template` gives habits and limits to all.
    """

    name: str
    trace: Trace
    arrivals: Arrivals
    template: Stream
    profiles: Mapping[tuple[str, str], Profile]
    prompt_scale: float = 1.0
    output_scale: float = 1.0

    def visits(self, seed: int) -> Iterator[Visit]:
        """One request per visit, until the moments end. The rows start over as long as there are moments."""
        of_habits = stream(seed, "behaviour", self.name)
        moments = self.arrivals.times(stream(seed, "arrivals", self.name))
        for number, (at_s, row) in enumerate(zip(moments, itertools.cycle(self.trace.rows), strict=False)):
            item = self._item(row, mix(seed, named(self.name), number))
            habits = self.template.behaviour.draw(of_habits)
            yield (
                at_s,
                [
                    replace(
                        item,
                        at_s=at_s,
                        cancel_tokens=habits.cancel_tokens,
                        cancel_s=habits.cancel_s,
                        read_tokens_s=habits.read_tokens_s,
                    )
                ],
            )

    def _item(self, row: TraceRow, seed: int) -> WorkItem:
        who = self.profiles.get((row.tenant, row.traffic_class)) or Profile(
            tenant=row.tenant,
            traffic_class=row.traffic_class,
            priority=row.priority,
            deadline_s=self.template.profile.deadline_s,
            slo=self.template.profile.slo,
        )
        num_prompt = max(1, round(row.num_prompt * self.prompt_scale))
        num_output = max(1, round(row.num_output * self.output_scale))
        prefix, block = self._prefix(row, num_prompt)
        return WorkItem(
            id="",
            num_prompt=num_prompt,
            num_output=num_output,
            max_output=max(num_output, self.template.max_output, round((row.max_output or 0) * self.output_scale)),
            prefix=prefix,
            prefix_block=block,
            session=row.session,
            turn=row.turn,
            tenant=who.tenant,
            traffic_class=who.traffic_class,
            priority=who.priority,
            deadline_s=who.deadline_s,
            slo=who.slo,
            retries=self.template.behaviour.retries,
            backoff_s=self.template.behaviour.backoff_s,
            seed=seed,
        )

    def _prefix(self, row: TraceRow, num_prompt: int) -> tuple[tuple[int, ...], int]:
        """Shared blocks and their size. Scaled prompts keep what they share: the blocks shrink or grow with them."""
        if row.prefix:
            return row.prefix, max(1, round(row.prefix_block * self.prompt_scale))
        if row.session:
            block = self.template.prefix_block
            return context_ids(named(f"{self.name} {row.session}"), 0, -(-num_prompt // block)), block
        return (), 0
