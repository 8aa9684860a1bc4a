"""vLLM V1: one token budget for all, running first, then waiting (ALGORITHMS §4)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from headway.core import Sequence, StepPlan
from headway.errors import BadSetting
from headway.sched.fill import NO_LIMIT, Budget, admit, capped, fill_running, youngest
from headway.sched.params import at_least, between, param
from headway.sched.parts.promises import possible, too_long, too_many
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
    max_num_partial_prefills: int = param(0, "most prompts computed in a step; 0 = no cap")
    max_long_partial_prefills: int = param(
        0, "of these, most longer than long_prefill_token_threshold: shorter ones pass the others; 0 = no cap"
    )
    chunked: bool = param(True, "cut prompts to the budget; without it a prompt waits for a step that holds it whole")
    order: Order = param(Order.FCFS, "fcfs, or priority: lower request priority first, and it preempts the higher")
    whole_sequence: bool = param(False, "admit only where all known tokens fit, not just this step's (vLLM 0.19 on)")
    watermark: float = param(0.0, "share of all blocks kept free at admission")

    def __post_init__(self) -> None:
        """Check the bounds."""
        at_least("max_num_batched_tokens", self.max_num_batched_tokens, 1)
        at_least("max_num_seqs", self.max_num_seqs, 1)
        at_least("long_prefill_token_threshold", self.long_prefill_token_threshold, 0)
        at_least("max_num_partial_prefills", self.max_num_partial_prefills, 0)
        at_least("max_long_partial_prefills", self.max_long_partial_prefills, 0)
        if self.max_long_partial_prefills and not self.long_prefill_token_threshold:
            raise BadSetting(
                f"max_long_partial_prefills is {self.max_long_partial_prefills}, but no prompt counts as long: "
                "set long_prefill_token_threshold, too"
            )
        if 0 < self.max_num_partial_prefills < self.max_long_partial_prefills:
            raise BadSetting(
                f"max_long_partial_prefills is {self.max_long_partial_prefills}, above max_num_partial_prefills "
                f"({self.max_num_partial_prefills}), which counts long prompts, too; lower it, or raise the other"
            )
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
    source = "vLLM V1 scheduler"
    refuses = True
    overlaps = True

    def __init__(self, params: VllmParams) -> None:
        self._params = params
        self.honours_priority = params.order is Order.PRIORITY

    def limits(self) -> PlanLimits:
        """Token budget and sequence cap; uncut prompts, recomputed output included, must fit the budget."""
        params = self._params
        return PlanLimits(
            max_tokens=params.max_num_batched_tokens,
            max_seqs=params.max_num_seqs,
            max_total=None if params.chunked else params.max_num_batched_tokens,
        )

    def adopt(self, old: Policy) -> bool:
        """It remembers nothing; only a prompt that is under way could stand in the way of whole prompts."""
        return isinstance(old, Vllm) and self._params.chunked

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
            cap=params.long_prefill_token_threshold,
            victim=_least_urgent if by_priority else youngest,
        )
        if view.waiting and not plan.preemptions:
            queue = sorted(view.waiting, key=_urgency) if by_priority else view.waiting
            admit(
                view,
                plan,
                budget,
                self._let_in(view, plan, queue),
                chunk=lambda seq, left: self._chunk(view, seq, left),
                fits=lambda seq: not params.whole_sequence or _fits_whole(view, seq),
                watermark_blocks=int(params.watermark * view.ledger.num_blocks),
            )
        return plan

    def _let_in(self, view: View, plan: StepPlan, queue: Iterable[Sequence]) -> Iterator[Sequence]:
        """The queue without what can never run, as far as the caps on prompts under way allow."""
        params = self._params
        queue = possible(plan, queue, lambda seq: self._obstacle(view, seq))
        if not params.max_num_partial_prefills and not params.max_long_partial_prefills:
            yield from queue
            return
        underway = [seq.num_tokens for seq in view.running if not seq.is_decoding]
        for seq in queue:
            if len(underway) >= (params.max_num_partial_prefills or NO_LIMIT):
                return
            num_long = sum(size > params.long_prefill_token_threshold for size in [*underway, seq.num_tokens])
            is_long = seq.num_tokens > params.long_prefill_token_threshold
            if is_long and num_long > (params.max_long_partial_prefills or NO_LIMIT):
                continue
            yield seq
            if view.ledger.taken(seq):
                underway.append(seq.num_tokens)

    def _obstacle(self, view: View, seq: Sequence) -> str | None:
        """Why a request can never be admitted, if so."""
        params = self._params
        if not params.chunked and view.ledger.num_pending(seq) > params.max_num_batched_tokens:
            return (
                f"{seq.request.id} has {seq.num_tokens} tokens to prefill at once, but max_num_batched_tokens is "
                f"{params.max_num_batched_tokens}: shorten it, raise that, or set chunked=true"
            )
        num_spare = int(params.watermark * view.ledger.num_blocks)
        return too_long(view, seq, num_spare) or too_many(seq, params.max_num_seqs, "max_num_seqs")

    def _chunk(self, view: View, seq: Sequence, left: int) -> int:
        """Tokens of a new prompt in this step; 0 passes over a prompt that must not be cut and does not fit."""
        wanted = capped(view.ledger.num_pending(seq), self._params.long_prefill_token_threshold)
        if not self._params.chunked and wanted > left:
            return 0
        return min(wanted, left)


def _fits_whole(view: View, seq: Sequence) -> bool:
    is_room = view.ledger.take(seq, view.ledger.num_pending(seq))
    view.ledger.give_back(seq)
    return is_room


def _urgency(seq: Sequence) -> tuple[int, int, int]:
    return seq.request.priority, seq.rank, seq.choice


def _least_urgent(candidates: list[Sequence]) -> Sequence:
    return max(candidates, key=_urgency)
