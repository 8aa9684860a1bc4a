"""vLLM V1: one token budget for all, running first, then waiting (ALGORITHMS §4)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from headway.core import Sequence, StepPlan
from headway.sched.fill import Budget, admit, capped, fill_running, youngest
from headway.sched.params import at_least, between, param
from headway.sched.policy import Axes, PlanLimits, Policy
from headway.sched.view import View


class Order(StrEnum):
    """Who comes first."""

    FCFS = "fcfs"
    PRIORITY = "priority"


@dataclass(frozen=True, slots=True, kw_only=True)
class VllmParams:
    """Parameters of `vllm`."""

    max_num_batched_tokens: int = param(2048, "token budget of a step")
    max_num_seqs: int = param(256, "most sequences running at once")
    long_prefill_token_threshold: int = param(0, "most tokens of one prompt in a step; 0 = no cap")
    chunked: bool = param(True, "cut prompts to the budget; without it a prompt waits for a step that holds it whole")
    order: Order = param(Order.FCFS, "fcfs, or priority: lower request priority first, and it preempts the higher")
    watermark: float = param(0.0, "share of all blocks kept free at admission")

    def __post_init__(self) -> None:
        """Check the bounds."""
        at_least("max_num_batched_tokens", self.max_num_batched_tokens, 1)
        at_least("max_num_seqs", self.max_num_seqs, 1)
        at_least("long_prefill_token_threshold", self.long_prefill_token_threshold, 0)
        between("watermark", self.watermark, 0.0, 0.9)


class Vllm(Policy):
    """Unified token budget with chunked prefill; the youngest gives way by recompute."""

    Params = VllmParams
    axes = Axes(
        order="arrival, or priority then arrival",
        sharing="running first, then waiting, up to one token budget",
        reservation="this step's tokens",
        shortage="recompute the youngest (or the lowest priority); admit nobody in that step",
    )
    source = "vLLM V1 scheduler (ALGORITHMS §4)"
    honours_priority = True

    def __init__(self, params: VllmParams) -> None:
        self._params = params

    def limits(self) -> PlanLimits:
        """Token budget and sequence cap; uncut prompts, recomputed output included, must fit the budget."""
        params = self._params
        return PlanLimits(
            max_tokens=params.max_num_batched_tokens,
            max_seqs=params.max_num_seqs,
            max_total=None if params.chunked else params.max_num_batched_tokens,
        )

    def reorders(self) -> bool:
        """By priority, where it knows priorities."""
        return self._params.order is Order.PRIORITY

    def plan(self, view: View) -> StepPlan:
        """Running sequences first; the waiting ones only when nobody had to give way."""
        plan = StepPlan()
        params = self._params
        budget = Budget.of(view, params.max_num_batched_tokens, params.max_num_seqs)
        by_priority = params.order is Order.PRIORITY
        fill_running(
            view,
            plan,
            budget,
            chunk=lambda seq: capped(seq.num_pending, params.long_prefill_token_threshold),
            victim=_least_urgent if by_priority else youngest,
        )
        if not plan.preemptions:
            queue = sorted(view.waiting, key=_urgency) if by_priority else view.waiting
            admit(
                view,
                plan,
                budget,
                queue,
                chunk=lambda seq, left: self._chunk(view, seq, left),
                watermark_blocks=int(params.watermark * view.ledger.num_blocks),
            )
        return plan

    def _chunk(self, view: View, seq: Sequence, left: int) -> int:
        """Tokens of a new prompt in this step; 0 passes over a prompt that must not be cut and does not fit."""
        wanted = capped(view.ledger.num_pending(seq), self._params.long_prefill_token_threshold)
        if not self._params.chunked and wanted > left:
            return 0
        return min(wanted, left)


def _urgency(seq: Sequence) -> tuple[int, float]:
    return seq.request.priority, seq.request.arrival_s


def _least_urgent(candidates: list[Sequence]) -> Sequence:
    return max(enumerate(candidates), key=lambda entry: (*_urgency(entry[1]), entry[0]))[1]
