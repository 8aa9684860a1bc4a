"""The one thread that owns a core: commands in, deltas out."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass

from headway.core import Cause, Event, Finished, FinishReason, PromptScored, Rejected, Request
from headway.core.result import Logprobs
from headway.engine.core import EngineCore
from headway.engine.outputs import Delta, Usage
from headway.engine.text import TextStage
from headway.errors import ExecutorFault, PolicyFault

log = logging.getLogger(__name__)

IDLE_WAIT_S = 0.005
"""How long to wait for a command when there is work that no policy wants to run yet."""

STALL_S = 10.0
"""How long a policy may run nobody, although there is work, before the log says so."""


@dataclass(frozen=True, slots=True)
class Submit:
    """Queue a request."""

    request: Request


@dataclass(frozen=True, slots=True)
class Abort:
    """End a request; idempotent, effective before the next step."""

    request_id: str
    reason: FinishReason = FinishReason.ABORT


@dataclass(frozen=True, slots=True)
class Call:
    """Run something on the loop's thread between two steps; where that has ended, `forsaken` hears of it instead."""

    action: Callable[[EngineCore], None]
    forsaken: Callable[[ExecutorFault], None] | None = None


@dataclass(frozen=True, slots=True)
class Quit:
    """Abort everything and end the thread."""


Command = Submit | Abort | Call | Quit


@dataclass(slots=True)
class Ended:
    """A request is over; its usage."""

    usage: Usage


@dataclass(slots=True)
class Refused:
    """A queued request was refused after all; `retry_after_s` is filled in where the way back to the caller begins."""

    reason: str
    cause: Cause
    retry_after_s: float = 1.0


@dataclass(slots=True)
class Scored:
    """Log probabilities of the prompt."""

    logprobs: tuple[Logprobs, ...]


@dataclass(slots=True)
class Died:
    """The loop ended by an error of ours; nothing more will come."""

    error: BaseException


Message = Delta | Ended | Refused | Scored | Died
Deliver = Callable[[list[tuple[str, Message]]], None]


class EngineLoop:
    """Runs steps while there is work. Only its thread touches the core. `tend` is called before each step."""

    def __init__(self, core: EngineCore, text: TextStage, deliver: Deliver) -> None:
        self.core = core
        self.step_began_s: float | None = None
        self._idle_since_s: float | None = None
        self._is_stall_told = False
        self.tend: Callable[[EngineCore], None] = _nothing
        self._text = text
        self._deliver = deliver
        self._inbox: queue.SimpleQueue[Command] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="headway-engine", daemon=True)
        self._quitting = self._has_ended = False
        self.died: BaseException | None = None

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def send(self, command: Command) -> None:
        """Give the loop something to do; safe from any thread."""
        self._inbox.put(command)
        if self._has_ended:
            self._forsake()

    def join(self, timeout_s: float | None = None) -> bool:
        """Wait for the thread's end; False when it still runs."""
        if self._thread.is_alive():
            self._thread.join(timeout_s)
        return not self._thread.is_alive()

    @property
    def is_alive(self) -> bool:
        """Whether the thread runs, and goes on."""
        return self._thread.is_alive() and self.died is None

    def _run(self) -> None:
        try:
            while not self._quitting:
                self._read_inbox()
                self.core.flush_events()
                self.tend(self.core)
                self.core.flush_events()
                if self.core.has_work and not self._step():
                    self._wait(IDLE_WAIT_S)
        except BaseException as error:
            # Who made a mistake in a policy needs its traceback, not ours.
            cause = error.__cause__ if isinstance(error, PolicyFault) else error
            log.critical("the engine stopped: %s", error, exc_info=cause)
            self.died = error
            self._deliver([("", Died(error))])
            if not isinstance(error, Exception):
                raise
        finally:
            self._has_ended = True
            self._forsake()

    def _forsake(self) -> None:
        """Tell those who wait for something that it will not be done. Whoever takes a command out tells its sender."""
        while True:
            try:
                command = self._inbox.get_nowait()
            except queue.Empty:
                return
            if isinstance(command, Call) and command.forsaken is not None:
                command.forsaken(ExecutorFault("the engine has stopped"))

    def stuck_s(self) -> float:
        """Seconds for which the step under way has lasted, or for which nobody was run although there was work."""
        since_s = [moment_s for moment_s in (self.step_began_s, self._idle_since_s) if moment_s is not None]
        return self.core.clock.now() - min(since_s) if since_s else 0.0

    def _step(self) -> bool:
        self.step_began_s = now_s = self.core.clock.now()
        try:
            is_busy = self.core.step()
        finally:
            self.step_began_s = None
        if is_busy or not self.core.has_work:
            self._idle_since_s = None
        else:
            self._note_standstill(now_s)
        return is_busy

    def _note_standstill(self, now_s: float) -> None:
        """The policy runs nobody, although there is work: say so once when that lasts."""
        if self._idle_since_s is None:
            self._idle_since_s, self._is_stall_told = now_s, False
        elif self._idle_since_s + STALL_S <= now_s and not self._is_stall_told:
            self._is_stall_told = True
            queues = self.core.scheduler.queues
            log.error(
                "nobody was run for %g s, although requests are here: %s; %d sequences wait, %d run, %d are swapped",
                STALL_S,
                ", ".join(list(queues.families)[:5]),
                len(queues.waiting),
                len(queues.running),
                len(queues.swapped),
            )

    def _read_inbox(self) -> None:
        """Everything that waits; when there is nothing to compute, sleep until something comes."""
        if not self.core.has_work:
            self._idle_since_s = None
            self._obey(self._inbox.get())
        while True:
            try:
                self._obey(self._inbox.get_nowait())
            except queue.Empty:
                return

    def _wait(self, timeout_s: float) -> None:
        try:
            self._obey(self._inbox.get(timeout=timeout_s))
        except queue.Empty:
            return

    def _obey(self, command: Command) -> None:
        match command:
            case Submit(request):
                self.core.submit(request)
            case Abort(request_id, reason):
                self.core.abort(request_id, reason)
            case Call(action):
                action(self.core)
            case Quit():
                for request_id in list(self.core.scheduler.queues.families):
                    self.core.abort(request_id)
                self.core.flush_events()
                self._quitting = True

    def on_events(self, events: list[Event]) -> None:
        """The core's `emit`: turn a step's events into messages."""
        messages: list[tuple[str, Message]] = list(self._text.deltas(events))
        for event in events:
            match event:
                case PromptScored(request_id, logprobs):
                    messages.insert(0, (request_id, Scored(logprobs)))
                case Finished(request, _, num_output, num_cached, _):
                    usage = Usage(num_prompt=request.num_prompt, num_output=num_output, num_cached=num_cached)
                    messages.append((request.id, Ended(usage)))
                case Rejected(request, reason, _, cause):
                    messages.append((request.id, Refused(reason, cause)))
                case _:
                    pass
        if messages:
            self._deliver(messages)


def _nothing(_: EngineCore) -> None:
    """Nobody tends."""
