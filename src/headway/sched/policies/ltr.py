"""LTR: shortest first by a given length, with starvation control ("Learning to rank", ALGORITHMS §17)."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from enum import StrEnum
from itertools import chain

from headway.core import Event, Place, PreemptMethod, Sequence, SequenceFinished, StepPlan, StepRecord
from headway.sched.fill import Budget, grant, obtain, preempt
from headway.sched.params import at_least, param
from headway.sched.policy import Axes, PlanLimits, Policy
from headway.sched.view import View

MAX_LOST = 8
"""Whose prefill came to nothing so often in a row stays first to its end: else two starved ones can undo each other."""


class Score(StrEnum):
    """What stands for a request's length."""

    PREDICTED = "predicted"  # the length predicted with the request, or max_output without one
    SJF = "sjf"  # max_output: shortest job first
    SRTF = "srtf"  # max_output less what was emitted: shortest remaining time first
    FCFS = "fcfs"  # nothing: arrival alone


class Preemption(StrEnum):
    """How a sequence gives up its blocks."""

    SWAP = "swap"
    RECOMPUTE = "recompute"


@dataclass(frozen=True, slots=True, kw_only=True)
class LtrParams:
    """Parameters of `ltr`."""

    score: Score = param(Score.PREDICTED, "predicted (else max_output), sjf (max_output), srtf (max_output left), fcfs")
    starv: int = param(200, "steps without a run after which a sequence comes first; 0 = never")
    period: int = param(10, "runs for which it then stays first")
    preemption: Preemption = param(Preemption.SWAP, "swap, falling back to recompute, or recompute")
    max_num_batched_tokens: int = param(512, "token budget of a step")
    max_num_seqs: int = param(256, "sequences computed in a step")

    def __post_init__(self) -> None:
        """Check the bounds."""
        at_least("starv", self.starv, 0)
        at_least("period", self.period, 1)
        at_least("max_num_batched_tokens", self.max_num_batched_tokens, 1)
        at_least("max_num_seqs", self.max_num_seqs, 1)


@dataclass(slots=True, eq=False)
class _Standing:
    """How long a sequence has not run, whether it comes first for that, and how often its prefill came to nothing."""

    idle: int = 0
    is_promoted: bool = False
    runs_left: int = 0
    num_lost: int = 0


class Ltr(Policy):
    """Shortest expected output first, preempting longer ones; who has starved comes first for a while."""

    Params = LtrParams
    axes = Axes(
        order="starved first, then shortest expected output, then arrival",
        sharing="in that order, chunked, up to one token budget",
        reservation="this step's tokens",
        shortage="swap out or recompute the last in order",
    )
    source = "Efficient LLM scheduling by learning to rank, NeurIPS'24; vllm-ltr"
    overlaps = True

    def __init__(self, params: LtrParams) -> None:
        self._params = params
        self._method = PreemptMethod(params.preemption.value)
        self._standings: dict[str, _Standing] = {}  # in order of arrival, which breaks ties

    def limits(self) -> PlanLimits:
        """Tokens and sequences computed in a step; memory alone bounds the sequences that wait on the device."""
        return PlanLimits(max_tokens=self._params.max_num_batched_tokens, max_lanes=self._params.max_num_seqs)

    def reorders(self) -> bool:
        """Always: its order is its point."""
        return True

    def plan(self, view: View) -> StepPlan:
        """Everyone in order, running or not, as far as the budgets and memory go.

        Whoever lacks memory takes it from the last in order, if that suffices; else those behind it that hold
        memory run on, and nobody comes in any more.
        """
        plan = StepPlan()
        budget = Budget(self._params.max_num_batched_tokens, self._params.max_num_seqs)
        ordered = self._ordered(view)
        behind = deque(seq for seq in ordered if seq.place is Place.RUNNING)
        gone: set[str] = set()
        is_open = True
        for seq in ordered:
            if budget.num_tokens <= 0 or len(plan.grants) == budget.num_seqs:
                break
            if behind and seq is behind[0]:
                behind.popleft()
            elif seq.id in gone or not is_open:
                continue
            num_tokens = min(view.ledger.num_pending(seq), budget.num_tokens)
            if obtain(view, plan, seq, num_tokens) or self._make_room(view, plan, seq, num_tokens, behind):
                grant(plan, budget, seq, num_tokens)
            else:
                is_open = False
            gone.update(entry.seq.id for entry in plan.preemptions[len(gone) :])
        return plan

    def _make_room(self, view: View, plan: StepPlan, seq: Sequence, num_tokens: int, behind: deque[Sequence]) -> bool:
        """Take memory from the last of `behind` until it suffices; from nobody, and False, where all is too little."""
        what_if = view.ledger.scratch()
        for other in behind:
            what_if.give_back(other)
        take = what_if.take_swap_in if seq.place is Place.SWAPPED else what_if.take
        if not take(seq, num_tokens):
            return False
        while not obtain(view, plan, seq, num_tokens):
            victim = behind.pop()
            if not preempt(plan, view, victim, self._method):
                preempt(plan, view, victim)
        return True

    def on_event(self, event: Event) -> None:
        """Count the steps that each sequence ran or did not, and forget what ended."""
        match event:
            case StepRecord(grants=grants, preempted=preempted):
                for seq_id in self._standings.keys() & preempted:  # but those who ended in this step
                    self._standings[seq_id].num_lost += 1
                for seq_id, standing in self._standings.items():
                    if seq_id in grants:
                        standing.idle = 0
                        standing.runs_left -= 1
                    else:
                        standing.idle += 1
            case SequenceFinished(seq_id=seq_id):
                self._standings.pop(seq_id, None)
            case _:
                pass

    def _ordered(self, view: View) -> list[Sequence]:
        seqs = {seq.id: seq for seq in chain(view.running, view.swapped, view.waiting) if not seq.num_in_flight}
        for seq in sorted(seqs.values(), key=lambda seq: seq.request.arrival_s):
            standing = self._standings.setdefault(seq.id, _Standing())
            if seq.is_decoding:
                standing.num_lost = 0
            if self._params.starv and standing.idle >= self._params.starv:
                standing.is_promoted, standing.idle, standing.runs_left = True, 0, self._params.period
            elif standing.runs_left <= 0 and standing.num_lost < MAX_LOST:
                standing.is_promoted = False
        here = (seqs[seq_id] for seq_id in self._standings if seq_id in seqs)
        return sorted(here, key=lambda seq: (not self._standings[seq.id].is_promoted, self._length(seq)))

    def _length(self, seq: Sequence) -> int:
        """Its score, negated: lower runs earlier."""
        request = seq.request
        match self._params.score:
            case Score.PREDICTED:
                return request.max_output if request.predicted is None else request.predicted
            case Score.SJF:
                return request.max_output
            case Score.SRTF:
                return request.max_output - seq.num_output
        return 0
