"""vLLM V0 in its three generations: mixed steps, prefill-first, and chunked prefill (ALGORITHMS §3)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from headway.core import PreemptMethod, Sequence, StepPlan
from headway.sched.fill import Budget
from headway.sched.params import at_least, between, param
from headway.sched.parts import gangs
from headway.sched.parts.gangs import Gang, gangs_of
from headway.sched.parts.promises import too_long, too_many
from headway.sched.policy import Axes, PlanLimits, Policy
from headway.sched.view import View


class Mode(StrEnum):
    """Which generation."""

    MIXED = "mixed"
    PREFILL_FIRST = "prefill_first"
    CHUNKED = "chunked"


class Preemption(StrEnum):
    """What a request of one sequence loses; one of several is swapped wherever the host tier has room."""

    RECOMPUTE = "recompute"
    SWAP = "swap"


class Append(StrEnum):
    """When a decode finds memory short."""

    NEED = "need"
    EXACT = "exact"


@dataclass(frozen=True, slots=True, kw_only=True)
class VllmV0Params:
    """Parameters of `vllm_v0`."""

    mode: Mode = param(
        Mode.MIXED,
        "mixed: prompts beside decodes (v0.1); prefill_first: prompts alone, before decodes (v0.2 to v0.6); "
        "chunked: decodes first, prompts cut to the rest",
    )
    preemption: Preemption = param(Preemption.RECOMPUTE, "recompute or swap, for requests with one running sequence")
    append: Append = param(
        Append.NEED, "need: a decode wants the blocks it needs; exact: a free block per sequence, needed or not"
    )
    max_num_batched_tokens: int = param(2560, "token budget of a step")
    max_num_seqs: int = param(256, "most sequences running at once")
    watermark: float = param(0.01, "share of all blocks kept free by admissions and swap-ins")

    def __post_init__(self) -> None:
        """Check the bounds."""
        at_least("max_num_batched_tokens", self.max_num_batched_tokens, 1)
        at_least("max_num_seqs", self.max_num_seqs, 1)
        between("watermark", self.watermark, 0.0, 0.9)


class VllmV0(Policy):
    """All sequences of a request together; optimistic admission, the youngest request gives way."""

    Params = VllmV0Params
    axes = Axes(
        order="arrival",
        sharing="prompts beside decodes, before them alone, or cut behind them, by mode",
        reservation="the prompt, above a watermark",
        shortage="preempt the youngest request whole: recompute, or swap",
    )
    source = "vLLM v0.1 to v0.6, PagedAttention"
    refuses = True
    overlaps = True

    def __init__(self, params: VllmV0Params) -> None:
        self._params = params

    def limits(self) -> PlanLimits:
        """Prompts keep to the token budget, and uncut ones must fit it, output recomputed with them."""
        params = self._params
        is_chunked = params.mode is Mode.CHUNKED
        return PlanLimits(
            max_tokens=params.max_num_batched_tokens,
            max_seqs=params.max_num_seqs,
            max_total=None if is_chunked else params.max_num_batched_tokens,
            decodes_exempt=not is_chunked,
        )

    def plan(self, view: View) -> StepPlan:
        """One step of the chosen generation."""
        plan = StepPlan()
        mode = self._params.mode
        budget = Budget.of(view, self._params.max_num_batched_tokens, self._params.max_num_seqs)
        if mode is not Mode.CHUNKED and (broken := [seq for seq in view.running if not seq.is_decoding]):
            self._keep(view, plan, budget, broken)  # their step failed: nothing else until they are computed
            return plan
        if mode is Mode.PREFILL_FIRST and not view.swapped:
            self._admit(view, plan, budget)
            if plan.grants:
                return plan
        self._keep(view, plan, budget, view.running)
        stops_swap_in = {entry.method for entry in plan.preemptions}
        if mode is Mode.MIXED:
            stops_swap_in.discard(PreemptMethod.RECOMPUTE)
        if not stops_swap_in:
            gangs.swap_in_gangs(view, plan, budget, size=self._size, spare_blocks=self._num_spare(view))
        if mode is not Mode.PREFILL_FIRST and not plan.preemptions and len(plan.swap_ins) == len(view.swapped):
            self._admit(view, plan, budget)
        return plan

    def _keep(self, view: View, plan: StepPlan, budget: Budget, seqs: list[Sequence]) -> None:
        """Running requests go on, oldest first."""
        gangs.keep_oldest(
            gangs_of(seq for seq in seqs if not seq.num_in_flight),
            append=lambda gang: self._append(view, plan, budget, gang),
            evict=lambda gang: self._evict(view, plan, budget, gang),
        )

    def _evict(self, view: View, plan: StepPlan, budget: Budget, gang: Gang) -> None:
        swap = self._params.preemption is Preemption.SWAP or len(gang) > 1
        gangs.evict_gang(view, plan, budget, gang, swap=swap, spare_blocks=self._num_spare(view))

    def _append(self, view: View, plan: StepPlan, budget: Budget, gang: Gang) -> bool:
        """Room for the next tokens of a request; a prompt under way has had its room since its admission."""
        sizes = gangs.sizes_of(gang, budget, self._size)
        if not any(sizes):
            return True  # the budget is spent: it keeps its place
        num_spare = len(gang) if self._params.append is Append.EXACT and gang[0].is_decoding else 0
        if view.ledger.num_free < num_spare or not gangs.take_together(view.ledger, gang, sizes, whole=False):
            return False
        gangs.grant_gang(plan, budget, gang, sizes)
        return True

    def _admit(self, view: View, plan: StepPlan, budget: Budget) -> None:
        """New requests in order, each with all blocks of its prompt; the first that must wait ends it."""
        gangs.admit_gangs(
            view,
            plan,
            budget,
            fits=lambda gang: self._fits_together(view, gang),
            obstacle=lambda gang: self._obstacle(view, gang),
            cuts=self._params.mode is Mode.CHUNKED,
            spare_blocks=self._num_spare(view),
        )

    def _size(self, seq: Sequence, left: int) -> int:
        """Tokens for a sequence that holds memory; decodes are cut by the budget in chunked mode alone."""
        if seq.is_decoding and self._params.mode is not Mode.CHUNKED:
            return 1
        return min(seq.num_pending, max(0, left))

    def _num_spare(self, view: View) -> int:
        return int(self._params.watermark * view.ledger.num_blocks)

    def _fits_together(self, view: View, gang: Gang) -> bool:
        """Whether preempted sequences of a request, which share nothing any more, can ever come back at once."""
        if sum(seq.num_tokens for seq in gang) > self._params.max_num_batched_tokens:
            return False
        num_blocks = sum(view.ledger.blocks_for(seq.num_tokens) for seq in gang)
        return num_blocks <= view.ledger.num_blocks - self._num_spare(view)

    def _obstacle(self, view: View, gang: Gang) -> str | None:
        """Why a request can never be admitted, if so."""
        longest = max(gang, key=lambda seq: seq.num_tokens)
        if self._params.mode is not Mode.CHUNKED and longest.num_tokens > self._params.max_num_batched_tokens:
            return (
                f"{longest.request.id} has {longest.num_tokens} tokens to prefill at once, but max_num_batched_tokens "
                f"is {self._params.max_num_batched_tokens}: shorten it, raise that, or set mode=chunked"
            )
        return too_long(view, longest, self._num_spare(view)) or too_many(
            gang[0], self._params.max_num_seqs, "max_num_seqs"
        )
