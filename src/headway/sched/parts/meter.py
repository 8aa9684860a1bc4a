"""What a policy planned, against what it took: the prices of time."""

from __future__ import annotations

from collections.abc import Sequence

from headway.core import Grant, PreemptMethod, StepPlan, StepRecord
from headway.sched.parts.controller import BudgetController
from headway.sched.parts.shortage import Prices
from headway.sched.parts.steptime import StepLoad

_SMOOTHING = 0.2
_COLD_COPY_S = 2e-5
_COLD_TOKEN_S = 5e-4


class StepMeter:
    """Feeds measured steps to a budget controller, and keeps the prices of recomputing and copying a token."""

    def __init__(self, controller: BudgetController) -> None:
        self._controller = controller
        self._planned: dict[int, tuple[StepLoad, StepLoad, int]] = {}
        self._copy_s = _COLD_COPY_S

    def adopt(self, other: StepMeter) -> None:
        """Go on with what another one measured."""
        self._controller.adopt(other._controller)
        self._copy_s = other._copy_s

    def planned(self, step: int, plan: StepPlan, load: StepLoad, decodes: StepLoad) -> None:
        """Remember what a step is about to do, decodes included, and say in the plan how long that should take."""
        model = self._controller.model
        plan.predicted_s = model.predict(load) if model.is_ready and load.num_tokens else None
        swaps = [entry.seq for entry in plan.preemptions if entry.method is PreemptMethod.SWAP]
        self._planned[step] = load, decodes, sum(seq.num_computed for seq in (*swaps, *plan.swap_ins))

    def measured(self, record: StepRecord) -> None:
        """Learn from a step that is over. Steps with copies tell their price, the others the time of tokens.

        One in which a batch broke tells nothing: who knows how far it came.
        """
        load, decodes, num_copied = self._planned.pop(record.step, (StepLoad(), StepLoad(), 0))
        seconds = record.end_s - record.start_s
        if not load.num_tokens or seconds <= 0 or record.lost:
            return
        if num_copied:
            extra_s = max(0.0, seconds - self._controller.model.predict(load))
            self._copy_s += _SMOOTHING * (extra_s / num_copied - self._copy_s)
        else:
            self._controller.observe(load, seconds, decodes)

    @property
    def prices(self) -> Prices:
        """Seconds per token, measured where there was something to measure.

        The steps of a restless machine may fit no price of tokens: then every way to give way would cost the same.
        """
        model = self._controller.model
        return Prices((model.is_ready and model.prefill_s(1, 0)) or _COLD_TOKEN_S, self._copy_s)


def load_of(plan: StepPlan) -> tuple[StepLoad, int]:
    """What a plan will cost, and how many of its grants are decodes."""
    num_decodes = sum(entry.seq.is_decoding for entry in plan.grants)
    return add_load(StepLoad(), plan.grants), num_decodes


def add_load(load: StepLoad, grants: Sequence[Grant]) -> StepLoad:
    """Add what grants will cost; returns the same record."""
    num_tokens = num_context = 0
    for entry in grants:
        num = entry.num_tokens
        num_tokens += num
        num_context += num * entry.seq.num_computed + num * (num + 1) // 2
    load.num_tokens += num_tokens
    load.num_context += num_context
    load.num_seqs += len(grants)
    return load
