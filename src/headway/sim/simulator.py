"""Any workload on any number of replicas, in virtual time: arrivals and steps, in the order of their moments."""

from __future__ import annotations

import gc
import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from math import inf

from headway.core import FinishReason
from headway.engine.core import Emit
from headway.report import Outcome, RequestRecord, RunRecord
from headway.sim.agenda import Agenda
from headway.sim.plant import Plan, Plant
from headway.sim.prompts import PromptMaker
from headway.sim.replica import Replica
from headway.sim.router import LeastLoaded, Router
from headway.sim.watch import Life, Watch, record_of
from headway.workload import WorkItem


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """Equal replicas behind one router. Each of `observers` makes a listener for a replica's events, given its name."""

    plant: Plant
    plan: Plan = field(default_factory=Plan)
    num_replicas: int = 1
    router: Router = field(default_factory=LeastLoaded)
    observers: Sequence[Callable[[str], Emit]] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class HandOver:
    """What it takes to move a prompt's KV to the replica that decodes: seconds at all, and seconds per token."""

    fixed_s: float
    token_s: float


class Interrupted(KeyboardInterrupt):
    """Ctrl-C stopped a simulation; `record` holds the requests that had ended by then."""

    def __init__(self, record: RunRecord) -> None:
        super().__init__()
        note = "the run was interrupted; this is what was measured until then"
        self.record = replace(record, is_complete=False, notes=[note])


def simulate(
    items: Iterable[WorkItem],
    pool: Pool,
    *,
    decoders: Pool | None = None,
    hand_over: HandOver | None = None,
    weights: Mapping[str, float] | None = None,
    duration_s: float = inf,
    label: str = "",
) -> RunRecord:
    """Serve a workload to its end and return what its clients would have seen.

    Items with moments of their own come in the order of these; none is sent at `duration_s` or later. `weights` are
    tenants' shares. With `decoders`, `pool`
    computes prompts and their first tokens, and after a `hand_over` a decoder makes the rest. Raises `BadSetting` for
    a bad policy or setting, and when a policy stops making progress; `Interrupted` at Ctrl-C.
    """
    run = _Run(Agenda(items, duration_s), PromptMaker(weights or {}), hand_over)
    run.add(pool)
    if decoders is not None:
        run.add(decoders)
    with _seldom_collected():
        try:
            return run.go(label)
        except KeyboardInterrupt:
            raise Interrupted(run.record(label)) from None


@contextmanager
def _seldom_collected() -> Iterator[None]:
    """Let the collector of cycles pass seldom: a run makes hundreds of millions of objects, and hardly a cycle."""
    usual = gc.get_threshold()
    gc.set_threshold(100_000, *usual[1:])
    try:
        yield
    finally:
        gc.set_threshold(*usual)


@dataclass(slots=True, eq=False)
class _Seat:
    """A replica with whoever watches it, and the index of its pool."""

    replica: Replica
    watch: Watch
    leg: int


class _Run:
    """One simulation. `_due` is what will happen beside arrivals and steps: hand-overs, and clients that give up."""

    def __init__(self, agenda: Agenda, prompts: PromptMaker, hand_over: HandOver | None) -> None:
        self._agenda = agenda
        self._prompts = prompts
        self._hand_over = hand_over or HandOver(fixed_s=0.0, token_s=0.0)
        self._pools: list[Pool] = []
        self._seats: list[_Seat] = []
        self._homes: dict[str, _Seat] = {}
        self._lives: dict[str, Life] = {}
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._num_due = 0
        self._impatient: list[Life] = []
        self._records: list[RequestRecord] = []

    def add(self, pool: Pool) -> None:
        """One more pool; requests pass the pools in the order in which they were added."""
        leg = len(self._pools)
        self._pools.append(pool)
        for number in range(pool.num_replicas):
            watch = Watch(pool.plant.num_blocks, partial(self._ended, leg), self._impatient.append)
            replica = Replica(f"{leg}.{number}", pool.plant, pool.plan, watch.on_events)
            for observer in pool.observers:
                replica.core.listen(observer(replica.name))
            self._seats.append(_Seat(replica, watch, leg))

    def go(self, label: str) -> RunRecord:
        """Serve everything; the earliest of arrivals, appointments and steps comes first."""
        while True:
            seat = min((seat for seat in self._seats if seat.replica.has_work), key=_now, default=None)
            now_s = inf if seat is None else seat.replica.now_s
            due_s = self._due[0][0] if self._due else inf
            if self._agenda.next_s <= min(now_s, due_s) < inf or (seat is None and self._agenda.next_s < due_s):
                self._arrive(*self._agenda.take())
            elif due_s < inf and due_s <= now_s:
                heapq.heappop(self._due)[2]()
            elif seat is not None:
                self._advance(seat)
            else:
                return self.record(label)

    def _advance(self, seat: _Seat) -> None:
        """Step the replica that is furthest behind, until something else is due or another one is behind it."""
        replica = seat.replica
        others = (_now(other) for other in self._seats if other is not seat and other.replica.has_work)
        until_s = min(others, default=inf)
        while True:
            replica.step()
            while self._impatient:
                life = self._impatient.pop()
                self._cancel(life, life.token_s[-1])
            due_s = self._due[0][0] if self._due else inf
            if not replica.has_work or replica.now_s >= min(until_s, due_s, self._agenda.next_s):
                return

    def _arrive(self, at_s: float, item: WorkItem) -> None:
        life = Life(item, at_s, patience=item.cancel_tokens or 0, answer=[] if item.session else None)
        self._lives[item.id] = life
        if item.cancel_s is not None:
            self._appoint(at_s + item.cancel_s, partial(self._cancel, life, at_s + item.cancel_s))
        self._send(at_s, 0, life)

    def _send(self, at_s: float, leg: int, life: Life) -> None:
        """Give a request to a replica of a pool, or refuse it."""
        item = life.item
        if leg:
            request, num_output = self._prompts.rest(item, at_s, life.intended_s), item.num_output - 1
        elif len(self._pools) > 1:
            request, num_output = self._prompts.first_token(item, at_s), 1
        else:
            request, num_output = self._prompts.request(item, at_s), item.num_output
        seats = {seat.replica.name: seat for seat in self._seats if seat.leg == leg}
        replica = self._pools[leg].router.choose(request, [seat.replica for seat in seats.values()])
        if why := replica.refusal(request):
            record = replace(record_of(life, FinishReason.ERROR, at_s), outcome=Outcome.REFUSED, reason=why)
            self._close(life, record, at_s)
            return
        seat = self._homes[item.id] = seats[replica.name]
        seat.watch.lives[item.id] = life
        replica.submit(request, num_output)

    def _ended(self, leg: int, life: Life, record: RequestRecord, at_s: float) -> None:
        """A replica is through with a request: on to the next pool, or back to its client."""
        self._homes.pop(record.id).replica.forget(record.id)
        if record.is_ok and leg + 1 < len(self._pools) and life.item.num_output > 1:
            cost = self._hand_over
            ready_s = at_s + cost.fixed_s + life.item.num_prompt * cost.token_s
            self._appoint(ready_s, partial(self._hand_on, ready_s, leg + 1, life))
        else:
            self._close(life, record, at_s)

    def _hand_on(self, at_s: float, leg: int, life: Life) -> None:
        """The KV has arrived; a client that left meanwhile needs it no more."""
        if self._lives.get(life.item.id) is life:
            self._send(at_s, leg, life)

    def _close(self, life: Life, record: RequestRecord, at_s: float) -> None:
        del self._lives[record.id]
        self._records.append(record)
        if life.answer is not None:
            self._prompts.remember(life.item, life.answer)
        if not self._agenda.ended(life.item, at_s) and life.item.session:
            self._prompts.forget(life.item.session)

    def _appoint(self, at_s: float, action: Callable[[], None]) -> None:
        self._num_due += 1
        heapq.heappush(self._due, (at_s, self._num_due, action))

    def _cancel(self, life: Life, at_s: float) -> None:
        """The client gives up; one whose answer is complete has nothing to give up."""
        name = life.item.id
        if self._lives.get(name) is not life:
            return
        life.left_s = at_s
        if seat := self._homes.get(name):
            seat.replica.abort(name)
        if name in self._lives:  # not yet taken in by a replica, or between two
            if seat := self._homes.pop(name, None):
                seat.watch.lives.pop(name, None)
            self._close(life, record_of(life, FinishReason.ABORT, at_s), at_s)

    def record(self, label: str) -> RunRecord:
        """What has ended, and what it took."""
        watches = [seat.watch for seat in self._seats]
        kvs = [seat.replica.core.scheduler.kv.stats for seat in self._seats]
        return RunRecord(
            requests=sorted(self._records, key=lambda record: (record.intended_s, record.id)),
            duration_s=max((record.end_s for record in self._records), default=0.0),
            label=label,
            is_virtual=True,
            server={
                "num_steps": sum(watch.num_steps for watch in watches),
                "num_preemptions": sum(watch.num_preemptions for watch in watches),
                "num_hit_tokens": sum(stats.num_hit_tokens for stats in kvs),
                "num_evicted_blocks": sum(stats.num_evicted for stats in kvs),
                "num_swapped_blocks": sum(stats.num_swapped_out + stats.num_swapped_in for stats in kvs),
            },
            steps=sorted((step for watch in watches for step in watch.steps.kept), key=lambda step: step.start_s),
        )


def _now(seat: _Seat) -> float:
    return seat.replica.now_s
