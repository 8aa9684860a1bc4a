"""The engine's heart: schedule, launch, commit. No threads, no I/O, no clock of its own."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable

from headway.clock import Clock
from headway.core import Batch, Cause, Event, FinishReason, Request, SequenceFinished
from headway.errors import ExecutorFault, PolicyFault
from headway.executor.base import Executor, Pending
from headway.sched import Policy, Scheduler

log = logging.getLogger(__name__)

Emit = Callable[[list[Event]], None]
"""Receives what happened, in order, once per step."""


class EngineCore:
    """One scheduler, one executor, one loop body. The same code serves live and in virtual time."""

    def __init__(self, scheduler: Scheduler, executor: Executor, clock: Clock, *listeners: Emit) -> None:
        self.scheduler = scheduler
        self.executor = executor
        self.clock = clock
        self._listeners = list(listeners)
        self._tell_clients: Emit | None = None
        self._max_pending = min(scheduler.policy.in_flight(), executor.capacity().in_flight)
        self._pending: deque[tuple[Batch, Pending]] = deque()

    def listen(self, listener: Emit) -> None:
        """Send every later event to `listener` too."""
        self._listeners.append(listener)

    def deliver_to(self, tell_clients: Emit) -> None:
        """Send every later event to `tell_clients`, after all listeners.

        Who is told that a request ended may ask again at once: by then what it held must be given back everywhere.
        """
        self._tell_clients = tell_clients

    def submit(self, request: Request) -> None:
        """Queue a request."""
        self.scheduler.submit(request, self.clock.now())

    def abort(self, request_id: str, reason: FinishReason = FinishReason.ABORT) -> None:
        """End a request in whatever state it is; unknown or ended ones are left alone."""
        self.scheduler.abort(request_id, self.clock.now(), reason)

    def refuse(self, request_id: str, reason: str, cause: Cause) -> bool:
        """Refuse a request that is not on the device; False, and nothing done, where it is or was never here."""
        return self.scheduler.refuse(request_id, reason, self.clock.now(), cause)

    def change_policy(self, policy: Policy, name: str) -> None:
        """Go on under another policy from the next step; see `Scheduler.change_policy`."""
        while self._pending:
            self._commit_oldest()
        self.flush_events()
        self.scheduler.change_policy(policy, name, self.clock.now())
        self._max_pending = min(policy.in_flight(), self.executor.capacity().in_flight)

    def step(self) -> bool:
        """Schedule one batch, run it, book the result. False when nothing was computed."""
        self.flush_events()  # a policy has heard of a request before it plans with it
        batch = self.scheduler.schedule(self.clock.now())
        if batch is not None:
            self._launch(batch)
        is_busy = batch is not None or bool(self._pending)
        if self._pending and (batch is None or len(self._pending) >= self._max_pending):
            self._commit_oldest()
        self._hand_out(self.scheduler.close_step(self.clock.now()))
        return is_busy

    def flush_events(self) -> None:
        """Hand out what happened between steps: arrivals and aborts."""
        self._hand_out(self.scheduler.take_events())

    @property
    def has_work(self) -> bool:
        """Whether a request or a launched batch is left."""
        return self.scheduler.has_work or bool(self._pending)

    def check(self) -> None:
        """Every part audits itself."""
        self.scheduler.check()

    def _launch(self, batch: Batch) -> None:
        try:
            self._pending.append((batch, self.executor.launch(batch)))
        except (AssertionError, PolicyFault):
            raise  # a mistake of ours: nobody knows what is true any more; or a tape's policy gives steps no length
        except Exception as error:  # noqa: BLE001 - whatever else an executor raises, only its batch fails
            self._fail(batch, error)

    def _commit_oldest(self) -> None:
        batch, pending = self._pending.popleft()
        try:
            result = pending.result()
        except AssertionError:
            raise
        except Exception as error:  # noqa: BLE001 - the same
            self._fail(batch, error)
        else:
            self.scheduler.commit(batch, result, self.clock.now())

    def _fail(self, batch: Batch, error: Exception) -> None:
        """A step broke: its sequences at fault end with an error, the engine goes on."""
        fault = error if isinstance(error, ExecutorFault) else ExecutorFault(f"{type(error).__name__}: {error}")
        hit = [lane.seq_id for lane in batch.lanes if lane.seq_id in fault.seq_ids or not fault.seq_ids]
        names = ", ".join(hit[:8]) + ", …" * (len(hit) > 8)
        unforeseen = None if fault is error else error
        log.error("step %d failed: %s; requests %s", batch.step, fault, names, exc_info=unforeseen)
        self.scheduler.fail(batch, fault.seq_ids, self.clock.now())

    def _hand_out(self, events: list[Event]) -> None:
        if not events:
            return
        if gone := [event.seq_id for event in events if type(event) is SequenceFinished]:
            self.executor.release(gone)
        for listener in self._listeners:
            listener(events)
        if self._tell_clients is not None:
            self._tell_clients(events)
