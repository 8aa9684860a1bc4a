"""Hugging Face TGI: prompts are prefilled alone, when enough of them wait or they waited long (ALGORITHMS §11)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import takewhile

from headway.core import Admitted, Event, Sequence, StepPlan, StepRecord
from headway.sched.fill import Budget, admit
from headway.sched.params import at_least, between, param
from headway.sched.parts.promises import possible, promise, run_whole, too_large
from headway.sched.policy import Axes, PlanLimits, Policy
from headway.sched.view import View


@dataclass(frozen=True, slots=True, kw_only=True)
class TgiParams:
    """Parameters of `tgi`."""

    max_batch_total_tokens: int | None = param(None, "tokens that may be reserved in all; none = all memory")
    max_batch_prefill_tokens: int = param(4096, "token budget of a prefill")
    waiting_served_ratio: float = param(0.3, "waiting requests needed to pause decoding, as a share of those decoding")
    max_waiting_tokens: int = param(20, "decodes after which fewer waiting requests suffice, too")

    def __post_init__(self) -> None:
        """Check the bounds."""
        if self.max_batch_total_tokens is not None:
            at_least("max_batch_total_tokens", self.max_batch_total_tokens, 1)
        at_least("max_batch_prefill_tokens", self.max_batch_prefill_tokens, 1)
        between("waiting_served_ratio", self.waiting_served_ratio, 0.0, 1e9)
        at_least("max_waiting_tokens", self.max_waiting_tokens, 0)


class Tgi(Policy):
    """A step is a prefill of new requests or a decode of all others, never both."""

    Params = TgiParams
    axes = Axes(
        order="arrival",
        sharing="prefills alone, then at least one decode of everybody",
        reservation="prompt + max_tokens − 1, to the end",
        shortage="cannot happen; nobody overtakes the first that cannot reserve",
    )
    source = "text-generation-inference v2/v3 router"
    refuses = True

    def __init__(self, params: TgiParams) -> None:
        self._params = params
        self._waiting_tokens = 0  # steps since the last prefill, itself included
        self._must_decode = False  # a prefill has paused a batch: its turn comes first
        self._num_admitted = 0  # in the step that is going on

    def limits(self) -> PlanLimits:
        """Prefills keep to their budget; a decode has as many tokens as there are sequences."""
        most = self._params.max_batch_prefill_tokens
        total = self._params.max_batch_total_tokens
        return PlanLimits(max_tokens=most, max_total=most if total is None else min(most, total), decodes_exempt=True)

    def plan(self, view: View) -> StepPlan:
        """Prefill what may be prefilled, else decode."""
        plan = StepPlan()
        if not view.running:
            self._prefill(view, plan, min_size=0)
        elif broken := [seq for seq in view.running if not seq.is_decoding]:
            self._prefill_again(view, plan, broken)
        elif self._must_decode or _has_forked(view) or not self._prefill(view, plan, min_size=self._min_size(view)):
            run_whole(view, plan, view.running)
        return plan

    def on_event(self, event: Event) -> None:
        """Count the steps since a prefill, and see whose turn is next."""
        match event:
            case Admitted():
                self._num_admitted += 1
            case StepRecord() if self._num_admitted:
                self._waiting_tokens = 1
                self._must_decode = event.queued.num_running > self._num_admitted
                self._num_admitted = 0
            case StepRecord() if event.grants:
                self._waiting_tokens += 1
                self._must_decode = False

    def _min_size(self, view: View) -> int:
        """Requests that a prefill must have to be worth a pause."""
        if self._waiting_tokens >= self._params.max_waiting_tokens:
            return 0
        return math.floor(len(view.running) * self._params.waiting_served_ratio)

    def _prefill(self, view: View, plan: StepPlan, min_size: int) -> bool:
        """Admit from the front of the queue; False, and nobody is, when those are too few."""
        params, ledger = self._params, view.ledger
        if len(view.waiting) < min_size:
            return False
        budget = Budget(params.max_batch_prefill_tokens)
        queue = possible(plan, view.waiting, lambda seq: self._obstacle(view, seq))
        admit(
            view,
            plan,
            budget,
            takewhile(lambda seq: ledger.num_pending(seq) <= budget.num_tokens, queue),
            chunk=lambda seq, _: ledger.num_pending(seq),
            reserve=lambda seq: promise(view, seq, seq.max_total - 1),
            watermark_blocks=ledger.num_blocks - self._num_blocks(view),
        )
        if len(plan.grants) >= min_size:
            return bool(plan.grants)
        for entry in plan.grants:
            ledger.give_back(entry.seq)
        plan.grants.clear()
        return False

    def _prefill_again(self, view: View, plan: StepPlan, broken: list[Sequence]) -> None:
        """Prompts whose step failed are computed anew, as many as the budget holds."""
        left = self._params.max_batch_prefill_tokens
        rows: list[Sequence] = []
        for seq in broken:
            left -= seq.num_pending
            if rows and left < 0:
                break
            rows.append(seq)
        run_whole(view, plan, rows)

    def _num_blocks(self, view: View) -> int:
        """Blocks that may be reserved in all."""
        total = self._params.max_batch_total_tokens
        if total is None:
            return view.ledger.num_blocks
        return min(view.ledger.num_blocks, total // view.ledger.block_size)

    def _obstacle(self, view: View, seq: Sequence) -> str | None:
        """Why a request can never be admitted, if so."""
        params = self._params
        if seq.num_prompt > params.max_batch_prefill_tokens:
            return (
                f"{seq.request.id} has a prompt of {seq.num_prompt} tokens, but max_batch_prefill_tokens is "
                f"{params.max_batch_prefill_tokens}: shorten the prompt or raise the budget"
            )
        num_blocks = seq.num_branches * view.ledger.blocks_for(seq.max_total - 1)
        if num_blocks > self._num_blocks(view) and num_blocks <= view.ledger.num_blocks:
            return (
                f"{seq.request.id} must reserve {num_blocks * view.ledger.block_size} tokens, but "
                f"max_batch_total_tokens is {params.max_batch_total_tokens}: lower max_tokens or n, or raise it"
            )
        return too_large(view, seq, num_blocks)


def _has_forked(view: View) -> bool:
    """Whether choices have yet to write for the first time: they need the room for their copies before others do."""
    return any(seq.choice and seq.num_output == 1 for seq in view.running)
