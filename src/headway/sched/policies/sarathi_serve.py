"""Sarathi-Serve: stall-free decodes, prompt chunks in what they leave of a token budget (ALGORITHMS §7)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from itertools import chain, takewhile

from headway.core import Sequence, StepPlan
from headway.errors import BadSetting
from headway.sched.fill import Budget, admit, grant, preempt
from headway.sched.params import at_least, between, param
from headway.sched.parts.gangs import keep_oldest
from headway.sched.parts.promises import possible, too_long, too_many
from headway.sched.policy import Axes, PlanLimits, Policy
from headway.sched.view import View

ROUNDING = 32
"""Chunks of a schedule are multiples of this, or of the smallest chunk where that is smaller."""


class Append(StrEnum):
    """When a decode finds memory short."""

    NEED = "need"
    EXACT = "exact"


@dataclass(frozen=True, slots=True, kw_only=True)
class SarathiServeParams:
    """Parameters of `sarathi_serve`."""

    token_budget: int = param(512, "token budget of a step; decodes alone may exceed it")
    max_num_seqs: int = param(128, "most sequences running at once")
    watermark: float = param(0.01, "share of all blocks kept free at admission")
    append: Append = param(
        Append.NEED, "need: a decode wants the block it needs; exact: a free block, needed or not, as published"
    )
    guard: bool = param(True, "admit nobody in a step that preempted; without it, requests can thrash as published")
    chunk_high: int = param(0, "budget for the first tokens of a prompt, shrinking to chunk_low; 0 = no schedule")
    chunk_low: int = param(0, "budget for the last tokens of a long prompt")
    chunk_stages: int = param(16, "steps from chunk_high to chunk_low")
    chunk_span: int = param(8192, "prompt tokens over which it shrinks")

    def __post_init__(self) -> None:
        """Check the bounds, and that a schedule is whole and within the budget."""
        at_least("token_budget", self.token_budget, 1)
        at_least("max_num_seqs", self.max_num_seqs, 1)
        between("watermark", self.watermark, 0.0, 0.9)
        at_least("chunk_stages", self.chunk_stages, 2)
        at_least("chunk_span", self.chunk_span, self.chunk_stages)
        if (self.chunk_high or self.chunk_low) and not 1 <= self.chunk_low <= self.chunk_high <= self.token_budget:
            raise BadSetting(
                f"chunk_low is {self.chunk_low} and chunk_high {self.chunk_high}; a schedule needs both, with "
                f"1 <= chunk_low <= chunk_high <= token_budget ({self.token_budget})"
            )


class SarathiServe(Policy):
    """Every decode in every step, then prompts under way, then new ones; blocks of a whole prompt at admission."""

    Params = SarathiServeParams
    axes = Axes(
        order="arrival",
        sharing="every decode, then prompts under way, then new ones, up to one token budget",
        reservation="the whole prompt, above a watermark",
        shortage="recompute the youngest, but no prompt that is older than the decode",
    )
    source = "Sarathi-Serve, OSDI'24, Algorithm 3 and its repository"
    refuses = True
    overlaps = True

    def __init__(self, params: SarathiServeParams) -> None:
        self._params = params
        self._schedule = _chunk_schedule(params)

    def limits(self) -> PlanLimits:
        """Token budget, unless decodes alone exceed it, and sequence cap."""
        params = self._params
        return PlanLimits(max_tokens=params.token_budget, max_seqs=params.max_num_seqs, decodes_exempt=True)

    def plan(self, view: View) -> StepPlan:
        """Decodes, prompts under way, new prompts."""
        plan = StepPlan()
        budget = Budget.of(view, self._params.token_budget, self._params.max_num_seqs)
        for seq in self._decode(view, plan, budget):
            size = self._chunk(view, seq, budget)
            if size > 0 and view.ledger.take(seq, size):
                grant(plan, budget, seq, size)
        if not (plan.preemptions and self._params.guard):
            self._admit(view, plan, budget)
        return plan

    def _decode(self, view: View, plan: StepPlan, budget: Budget) -> list[Sequence]:
        """Grant every decode; whoever lacks memory takes it from the youngest. Returns the prompts met on the way."""
        prompts: list[Sequence] = []
        num_spare = 1 if self._params.append is Append.EXACT else 0

        def append(gang: list[Sequence]) -> bool:
            (seq,) = gang
            if not seq.is_decoding:
                prompts.append(seq)
                return True
            if view.ledger.num_free < num_spare or not view.ledger.take(seq, 1):
                return False
            grant(plan, budget, seq, 1)
            return True

        def evict(gang: list[Sequence]) -> None:
            (seq,) = gang
            preempt(plan, view, seq)
            budget.num_seqs += seq.num_branches

        idle = (seq for seq in view.running if not seq.num_in_flight)
        keep_oldest([[seq] for seq in sorted(idle, key=_age)], append=append, evict=evict)
        return prompts

    def _admit(self, view: View, plan: StepPlan, budget: Budget) -> None:
        """New prompts in order; whoever was preempted in this step stands in front of them."""
        num_spare = int(self._params.watermark * view.ledger.num_blocks)
        again = (entry.seq for entry in reversed(plan.preemptions))
        queue = chain(again, possible(plan, view.waiting, lambda seq: self._obstacle(view, seq, num_spare)))
        admit(
            view,
            plan,
            budget,
            takewhile(lambda seq: self._chunk(view, seq, budget) > 0, queue),
            chunk=lambda seq, _: self._chunk(view, seq, budget),
            reserve=lambda seq: seq.num_tokens,
            watermark_blocks=num_spare,
        )

    def _chunk(self, view: View, seq: Sequence, budget: Budget) -> int:
        """Prompt tokens for a sequence in what is left; with a schedule, a prompt that is far on counts on less."""
        num_pending = view.ledger.num_pending(seq)
        left = budget.num_tokens
        if self._schedule:
            stage = (seq.num_tokens - num_pending) * len(self._schedule) // self._params.chunk_span
            left -= self._params.token_budget - self._schedule[min(stage, len(self._schedule) - 1)]
        return min(num_pending, left)

    def _obstacle(self, view: View, seq: Sequence, num_spare: int) -> str | None:
        """Why a request can never be admitted, if so."""
        return too_long(view, seq, num_spare) or too_many(seq, self._params.max_num_seqs, "max_num_seqs")


def _age(seq: Sequence) -> tuple[int, int]:
    return seq.rank, seq.choice


def _chunk_schedule(params: SarathiServeParams) -> list[int]:
    """Budget by stage of a prompt, from high to low in equal steps, rounded, within the budget; empty without one."""
    if not params.chunk_high:
        return []
    unit = min(ROUNDING, params.chunk_low)
    step = (params.chunk_high - params.chunk_low) / (params.chunk_stages - 1)
    sizes = (round((params.chunk_high - step * stage) / unit) * unit for stage in range(params.chunk_stages))
    return [min(size, params.token_budget) for size in sizes]
