"""SARATHI: one prompt chunk with every decode (ALGORITHMS §6)."""

from __future__ import annotations

from dataclasses import dataclass

from headway.core import Sequence, StepPlan
from headway.errors import BadSetting
from headway.sched.fill import Budget, grant
from headway.sched.params import at_least, param
from headway.sched.parts.capacity import blocks_to_come
from headway.sched.parts.promises import possible, too_large, too_many
from headway.sched.policy import Axes, PlanLimits, Policy
from headway.sched.view import View


@dataclass(frozen=True, slots=True, kw_only=True)
class SarathiParams:
    """Parameters of `sarathi`."""

    chunk_size: int = param(256, "most prompt tokens of a step")
    max_num_seqs: int = param(128, "most sequences running at once")
    tile_size: int = param(0, "cut chunks so that the step's tokens are a multiple of this; 0 = off")

    def __post_init__(self) -> None:
        """Check the bounds, and that whole tiles make a chunk."""
        at_least("chunk_size", self.chunk_size, 1)
        at_least("max_num_seqs", self.max_num_seqs, 1)
        at_least("tile_size", self.tile_size, 0)
        if self.tile_size and self.chunk_size % self.tile_size:
            raise BadSetting(
                f"chunk_size is {self.chunk_size}, which is no multiple of tile_size {self.tile_size}: "
                "no chunk could fill its tiles; change one of them"
            )


class Sarathi(Policy):
    """Decode-maximal batches: at most one prompt is computed in a step, and nobody decodes without it."""

    Params = SarathiParams
    axes = Axes(
        order="arrival",
        sharing="every decode, and one chunk of the oldest prompt",
        reservation="prompt + max_tokens − 1, counted but not taken",
        shortage="cannot happen",
    )
    source = "SARATHI, arXiv 2308.16369"
    refuses = True
    overlaps = True

    def __init__(self, params: SarathiParams) -> None:
        self._params = params

    def limits(self) -> PlanLimits:
        """A chunk, and one token for each other sequence."""
        params = self._params
        return PlanLimits(max_tokens=params.chunk_size + params.max_num_seqs - 1, max_seqs=params.max_num_seqs)

    def plan(self, view: View) -> StepPlan:
        """All decodes, then a chunk of the oldest prompt."""
        plan = StepPlan()
        budget = Budget()
        running = [seq for seq in view.running if not seq.num_in_flight]
        decodes = [seq for seq in running if seq.is_decoding]
        prompt = next((seq for seq in running if not seq.is_decoding), None) or self._next(view, plan)
        chunk = self._chunk(len(decodes))
        rows = [(seq, 1) for seq in decodes]
        if prompt is not None:
            rows.append((prompt, min(chunk, view.ledger.num_pending(prompt))))
        for seq, num_tokens in rows:
            fits = view.ledger.take(seq, num_tokens)
            assert fits, f"{seq.id} lacks memory that was counted for it"
            grant(plan, budget, seq, num_tokens)
        return plan

    def _chunk(self, num_decodes: int) -> int:
        """Most prompt tokens beside so many decodes; they fill whole tiles together."""
        params = self._params
        if not params.tile_size:
            return params.chunk_size
        if num_decodes < params.chunk_size:
            return params.chunk_size - num_decodes
        return params.tile_size - num_decodes % params.tile_size

    def _next(self, view: View, plan: StepPlan) -> Sequence | None:
        """The first that waits, if there is a place for it, and memory to its end that nobody else counts on."""
        seq = next(possible(plan, view.waiting, lambda seq: self._obstacle(view, seq)), None)
        if seq is None or view.num_running + seq.num_branches > self._params.max_num_seqs:
            return None
        num_promised = sum(blocks_to_come(view, other, other.max_total - 1) for other in view.running)
        return seq if _most_blocks(view, seq) <= view.ledger.num_free - num_promised else None

    def _obstacle(self, view: View, seq: Sequence) -> str | None:
        """Why a request can never be admitted, if so."""
        return too_many(seq, self._params.max_num_seqs, "max_num_seqs") or too_large(view, seq, _most_blocks(view, seq))


def _most_blocks(view: View, seq: Sequence) -> int:
    """Blocks of a waiting request at its longest: its choices share the full ones of the prompt.

    The KV of the last token is never written.
    """
    num_shared = seq.num_prompt // view.ledger.block_size
    return num_shared + seq.num_branches * (view.ledger.blocks_for(seq.max_total - 1) - num_shared)
