"""The contract of a scheduling policy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from headway.core import Batch, Event, Sequence, StepPlan
from headway.sched.view import View


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanLimits:
    """What a policy promises never to exceed in one step; None where it promises nothing.

    `max_seqs` bounds the sequences on the device after the step, `max_lanes` those computed in it. With
    `decodes_exempt`, decodes alone may exceed `max_tokens`, but nothing may be added to them then
    (Sarathi-Serve). `max_total` is the longest sequence, prompt + output, that it can ever schedule; the
    server promises no longer context.
    """

    max_tokens: int | None = None
    max_seqs: int | None = None
    max_lanes: int | None = None
    max_total: int | None = None
    decodes_exempt: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Axes:
    """The four answers in which policies differ."""

    order: str
    sharing: str
    reservation: str
    shortage: str


class Policy:
    """A pure planner: reads a view, spends its ledger, returns a plan. Base with empty hooks.

    A policy never touches the pool, the clock, metrics or a sequence. `Params` is a frozen dataclass whose
    fields carry `help` in their metadata; the registry fills it from `--set` and the engine's limits.
    """

    Params: ClassVar[type[Any]]
    axes: ClassVar[Axes]
    source: ClassVar[str]
    honours_priority: bool = False
    honours_tier: ClassVar[bool] = False
    honours_weight: bool = False
    overlaps: bool = False
    """Whether it plans while batches are in flight, leaving their sequences alone; others get one batch at a time."""
    refuses: bool = False
    """Whether it rejects by itself what can never run; others rely on the door: a server's, or a tape's."""

    def limits(self) -> PlanLimits:
        """What its plans keep to; every plan is checked against it."""
        return PlanLimits()

    def in_flight(self) -> int:
        """Batches that it wants pending at once."""
        return 1

    def units(self, batch: Batch) -> float:
        """How long a batch lasts in a tape, in units."""
        del batch
        return 1.0

    def reorders(self) -> bool:
        """Whether it takes waiting sequences in an order of its own, whatever order the view shows."""
        return False

    def adopt(self, old: Policy) -> bool:
        """Take over what a policy learned that this one replaces; False, and nothing taken, where it cannot.

        Where it can, running sequences stay where they are, and it hears only what happens from now on.
        """
        del old
        return False

    def plan(self, view: View) -> StepPlan:
        """Decide one step."""
        raise NotImplementedError

    def on_event(self, event: Event) -> None:
        """Hear what happened, for counters of its own."""

    def let_go(self, ended: list[Sequence], running: list[Sequence]) -> list[Sequence]:
        """Which ended sequences to release after a step: all, unless a batch is returned as one."""
        del running
        return ended


class Wrapper(Policy):
    """A policy that shows another one a changed view and leaves the rest to it.

    Its `Params` have a field `base`, the other's name; settings that are not its own go to the base.
    """

    def __init__(self, base: Policy) -> None:
        self.base = base
        self.overlaps = base.overlaps
        self.refuses = base.refuses

    def limits(self) -> PlanLimits:
        """The base's."""
        return self.base.limits()

    def in_flight(self) -> int:
        """The base's."""
        return self.base.in_flight()

    def units(self, batch: Batch) -> float:
        """The base's."""
        return self.base.units(batch)

    def reorders(self) -> bool:
        """The base's."""
        return self.base.reorders()

    def plan(self, view: View) -> StepPlan:
        """The base's."""
        return self.base.plan(view)

    def on_event(self, event: Event) -> None:
        """Pass it on."""
        self.base.on_event(event)

    def let_go(self, ended: list[Sequence], running: list[Sequence]) -> list[Sequence]:
        """The base's."""
        return self.base.let_go(ended, running)
