"""Where a policy is called: what it answers is looked at, and what a user's one raises gets its name and line."""

from __future__ import annotations

import math
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from itertools import islice
from pathlib import Path

from headway.core import Batch, Event, Sequence, StepPlan
from headway.errors import BadSetting, PolicyFault
from headway.sched.policy import PlanLimits, Policy, Wrapper
from headway.sched.view import View

_ANSWER = "gave a wrong answer"


def plan_of(policy: Policy, view: View, name: str) -> StepPlan:
    """What the policy plans. Raises `PolicyFault` where that is no plan at all, or a user's policy raises."""
    with naming(policy, name, f"raised in step {view.step}"):
        plan: object = policy.plan(view)
    if not isinstance(plan, StepPlan):
        raise PolicyFault(name, f"plan() returned {plan!r}, not a StepPlan")
    return plan


def tell(policy: Policy, events: Iterable[Event], name: str, step: int) -> None:
    """Let the policy hear what happened. Raises `PolicyFault` where a user's policy raises."""
    with naming(policy, name, f"raised in step {step}"):
        for event in events:
            policy.on_event(event)


def limits_of(policy: Policy, name: str) -> PlanLimits:
    """What its plans keep to. Raises `PolicyFault` where that is nothing to compare with, or a user's policy raises."""
    with naming(policy, name):
        limits: object = policy.limits()
    if not isinstance(limits, PlanLimits):
        raise PolicyFault(name, f"limits() returned {limits!r}, not PlanLimits", did=_ANSWER)
    for field, value in asdict(limits).items():
        if value is not None and not isinstance(value, int):
            raise PolicyFault(name, f"limits() has {field} {value!r}; it must be a whole number or None", did=_ANSWER)
    return limits


def let_go_of(policy: Policy, ended: list[Sequence], running: list[Sequence], name: str, step: int) -> list[Sequence]:
    """Which ended sequences it releases. Raises `PolicyFault` for any other, or where a user's policy raises."""
    with naming(policy, name, f"raised in step {step}"):
        released: object = policy.let_go(list(ended), running)
    if not isinstance(released, list):
        raise PolicyFault(name, f"let_go() returned {released!r}, not a list of sequences", did=_ANSWER)
    known = {id(seq) for seq in ended}
    for seq in released:
        if id(seq) not in known:
            raise PolicyFault(name, f"let_go() released {getattr(seq, 'id', seq)!r}, which had not ended", did=_ANSWER)
    if len({id(seq) for seq in released}) < len(released):
        raise PolicyFault(name, "let_go() released a sequence twice", did=_ANSWER)
    return released


def never_released(ended: Iterable[Sequence], name: str) -> PolicyFault:
    """What to tell of a policy that keeps ended sequences although it computes nothing any more."""
    kept = ", ".join(seq.id for seq in islice(ended, 5))
    return PolicyFault(
        name, f"let_go() never released {kept}, which had ended; nothing is computed meanwhile", did=_ANSWER
    )


def adopts(policy: Policy, old: Policy, name: str) -> bool:
    """Whether it goes on with what the old one learned. Raises `PolicyFault` where a user's policy raises."""
    with naming(policy, name):
        return policy.adopt(old)


def units_of(policy: Policy, batch: Batch, name: str) -> float:
    """How long a batch lasts in a tape. Raises `PolicyFault` for what is no length, or where a user's policy raises."""
    with naming(policy, name, f"raised in step {batch.step}"):
        units: object = policy.units(batch)
    if not isinstance(units, int | float) or not 0 < units < math.inf:
        raise PolicyFault(name, f"units() returned {units!r}; it must be a number above 0", did=_ANSWER)
    return float(units)


def try_out(policy: Policy, name: str) -> None:
    """Ask once what must not change later, so that whoever named a policy is told, not a request in the midst."""
    limits_of(policy, name)
    with naming(policy, name):
        num_batches: object = policy.in_flight()
        policy.reorders()
    if not isinstance(num_batches, int) or num_batches < 1:
        raise PolicyFault(
            name, f"in_flight() returned {num_batches!r}; it must be a whole number, 1 or more", did=_ANSWER
        )


@contextmanager
def naming(policy: Policy | type[Policy], name: str, did: str = "raised outside a step") -> Iterator[None]:
    """Turn what is raised here into a `PolicyFault` where somebody else wrote the policy or what it wraps."""
    try:
        yield
    except Exception as error:
        if (fault := _raised(policy, error, name, did)) is None:
            raise
        raise fault from error


def _raised(policy: Policy | type[Policy], error: Exception, name: str, did: str) -> PolicyFault | None:
    """What to tell whoever wrote a policy that raised, the line in their file with it; None where we wrote it."""
    theirs = _foreign_modules(policy)
    if not theirs or isinstance(error, PolicyFault | BadSetting):
        return None
    lines = [
        f" ({Path(frame.f_code.co_filename).name}, line {line}, in {frame.f_code.co_name})"
        for frame, line in traceback.walk_tb(error.__traceback__)
        if frame.f_globals.get("__name__") in theirs
    ]
    where = lines[-1] if lines else ""
    return PolicyFault(name, f"{type(error).__name__}: {error}{where}", did=did)


def _foreign_modules(policy: Policy | type[Policy]) -> set[str]:
    modules: set[str] = set()
    while True:
        kind = policy if isinstance(policy, type) else type(policy)
        modules |= {each.__module__ for each in kind.__mro__}
        if not isinstance(policy, Wrapper):
            return {module for module in modules if module.partition(".")[0] not in ("headway", "builtins")}
        policy = policy.base
