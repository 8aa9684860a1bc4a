"""TensorRT-LLM: first who fits in memory, then what fits in the step (ALGORITHMS §10)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from headway.core import Sequence, StepPlan
from headway.errors import BadSetting
from headway.sched.fill import Budget, grant
from headway.sched.params import at_least, param
from headway.sched.parts.capacity import fit_now, fit_to_end
from headway.sched.parts.chunks import equal_progress, first_come
from headway.sched.parts.promises import possible, too_large, too_many
from headway.sched.policy import Axes, PlanLimits, Policy
from headway.sched.view import View


class Capacity(StrEnum):
    """Who may hold memory."""

    GUARANTEED_NO_EVICT = "guaranteed_no_evict"
    MAX_UTILIZATION = "max_utilization"
    STATIC_BATCH = "static_batch"


class ChunkPolicy(StrEnum):
    """How prompts share what the decodes leave of a step."""

    FIRST_COME = "first_come"
    EQUAL_PROGRESS = "equal_progress"


@dataclass(frozen=True, slots=True, kw_only=True)
class TrtllmParams:
    """Parameters of `trtllm`."""

    capacity: Capacity = param(
        Capacity.GUARANTEED_NO_EVICT,
        "guaranteed_no_evict: admit who can hold memory to the end; max_utilization: who fits this step, and pause "
        "the last; static_batch: as the first, but only when nobody runs",
    )
    max_batch_size: int = param(2048, "most sequences running at once")
    max_num_tokens: int = param(8192, "token budget of a step")
    chunked: bool = param(False, "cut prompts that the budget does not hold, to multiples of the block size")
    chunk_policy: ChunkPolicy = param(
        ChunkPolicy.FIRST_COME, "first_come: the oldest prompt takes all; equal_progress: a block each, in turn"
    )

    def __post_init__(self) -> None:
        """Check the bounds."""
        at_least("max_batch_size", self.max_batch_size, 1)
        at_least("max_num_tokens", self.max_num_tokens, 1)
        if self.chunk_policy is not ChunkPolicy.FIRST_COME and not self.chunked:
            raise BadSetting(
                f"chunk_policy={self.chunk_policy} shares out chunks, but chunked is false; set it to true"
            )


class Trtllm(Policy):
    """Two stages: a capacity scheduler that sees memory alone, and a micro-batch scheduler that sees tokens alone."""

    Params = TrtllmParams
    axes = Axes(
        order="arrival; whoever waits for a prefix that is being computed is passed over",
        sharing="one token budget; prompts whole, or cut to blocks",
        reservation="blocks to completion, or this step's tokens (max_utilization)",
        shortage="cannot happen, or recompute the last one started (max_utilization)",
    )
    source = "TensorRT-LLM batch manager"
    refuses = True

    def __init__(self, params: TrtllmParams) -> None:
        self._params = params

    def limits(self) -> PlanLimits:
        """Token budget and batch size; without chunks a prompt, output recomputed with it, must fit the budget."""
        params = self._params
        return PlanLimits(
            max_tokens=params.max_num_tokens,
            max_seqs=params.max_batch_size,
            max_total=None if params.chunked else params.max_num_tokens,
        )

    def plan(self, view: View) -> StepPlan:
        """Fit memory, then fill the step."""
        plan = StepPlan()
        waiting = possible(plan, view.waiting, lambda seq: self._obstacle(view, seq))
        if self._params.capacity is Capacity.MAX_UTILIZATION:
            queue = sorted([*view.running, *waiting], key=lambda seq: seq.rank)
            fitting = fit_now(view, plan, queue, self._params.max_batch_size)
        else:
            is_closed = self._params.capacity is Capacity.STATIC_BATCH and bool(view.running)
            fitting = fit_to_end(view, () if is_closed else waiting, self._params.max_batch_size)
        sizes = self._sizes(view, fitting)
        budget = Budget(self._params.max_num_tokens)
        for seq in fitting:
            if size := sizes.get(seq.id):
                fits = view.ledger.take(seq, size)
                assert fits, f"{seq.id} fits in memory with others, but not without them"
                grant(plan, budget, seq, size)
        return plan

    def _sizes(self, view: View, fitting: Iterable[Sequence]) -> dict[str, int]:
        """Tokens for each, by sequence id: in order until the budget is spent; prompts to be cut share its rest."""
        left = self._params.max_num_tokens
        sizes: dict[str, int] = {}
        to_cut: dict[str, int] = {}
        for seq in fitting:
            wanted = view.ledger.num_pending(seq)
            if not seq.is_decoding and self._may_cut(seq):
                to_cut[seq.id] = wanted
            elif wanted <= left:
                sizes[seq.id] = wanted
                left -= wanted
            else:
                break
        unit = min(view.ledger.block_size, self._params.max_num_tokens)
        cut = equal_progress if self._params.chunk_policy is ChunkPolicy.EQUAL_PROGRESS else first_come
        return sizes | cut(to_cut, left, unit)

    def _may_cut(self, seq: Sequence) -> bool:
        """Whether a prompt may be cut: where the user said so, or where it could not come back otherwise."""
        return self._params.chunked or seq.num_tokens > self._params.max_num_tokens

    def _obstacle(self, view: View, seq: Sequence) -> str | None:
        """Why a request that waits can never be computed, if so."""
        params = self._params
        if not params.chunked and seq.num_prompt > params.max_num_tokens:
            return (
                f"{seq.request.id} has a prompt of {seq.num_prompt} tokens, but max_num_tokens is "
                f"{params.max_num_tokens}: shorten the prompt, raise the budget, or set chunked"
            )
        if params.capacity is Capacity.MAX_UTILIZATION:
            return too_large(view, seq, view.ledger.blocks_for(seq.max_total - 1)) or too_many(
                seq, params.max_batch_size, "max_batch_size"
            )
        num_blocks = seq.num_branches * view.ledger.blocks_for(seq.max_total)
        return too_many(seq, params.max_batch_size, "max_batch_size") or too_large(view, seq, num_blocks)
