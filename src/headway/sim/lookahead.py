"""Policies made to run as a particular engine runs them: ahead of the results, or several batches at a time."""

from __future__ import annotations

from headway.core import Event, Sequence, StepPlan
from headway.sched import PlanLimits, Policy, View


class Wrapped(Policy):
    """Another policy, unchanged in all that a subclass leaves alone."""

    def __init__(self, inner: Policy) -> None:
        self._inner = inner
        self.overlaps = inner.overlaps

    def limits(self) -> PlanLimits:
        """The inner policy's."""
        return self._inner.limits()

    def in_flight(self) -> int:
        """The inner policy's."""
        return self._inner.in_flight()

    def plan(self, view: View) -> StepPlan:
        """The inner policy's."""
        return self._inner.plan(view)

    def on_event(self, event: Event) -> None:
        """For the inner policy."""
        self._inner.on_event(event)

    def let_go(self, ended: list[Sequence], running: list[Sequence]) -> list[Sequence]:
        """The inner policy's choice."""
        return self._inner.let_go(ended, running)


class LookAhead(Wrapped):
    """A policy whose plans know what ended one step late: asynchronous scheduling.

    When such an engine plans step k + 1, step k is still running: tokens to come are counted on, but sequences that
    end in it still hold their blocks. So they are kept here until one more step has been planned. What arrives is
    kept back by whoever submits it.
    """

    def __init__(self, inner: Policy) -> None:
        super().__init__(inner)
        self._known: set[str] = set()

    def let_go(self, ended: list[Sequence], running: list[Sequence]) -> list[Sequence]:
        """What the inner policy lets go of and had ended before the last step."""
        ready = [seq for seq in self._inner.let_go(ended, running) if seq.id in self._known]
        self._known = {seq.id for seq in ended}
        return ready


class Pipelined(Wrapped):
    """A policy that keeps `num_stages` batches pending, so that every stage of a pipeline has one."""

    def __init__(self, inner: Policy, num_stages: int) -> None:
        super().__init__(inner)
        self._num_stages = num_stages

    def in_flight(self) -> int:
        """One batch per stage."""
        return max(self._num_stages, self._inner.in_flight())
