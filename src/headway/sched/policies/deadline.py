"""QoServe (Niyama): between earliest deadline and shortest prompt, chunks sized to slack (ALGORITHMS §20)."""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass
from enum import StrEnum

from headway.core import Event, Place, Sequence, SequenceFinished, StepPlan, StepRecord
from headway.sched.fill import Budget, grant, preempt
from headway.sched.params import at_least, param
from headway.sched.parts.meter import load_of
from headway.sched.parts.slack import Mix, fitted, measured, prefill_tokens, totals_for
from headway.sched.parts.steptime import StepLoad, StepTimeModel
from headway.sched.parts.terms import Promises, Terms
from headway.sched.policy import Axes, PlanLimits, Policy
from headway.sched.view import View

_DECAY = 0.995


class Predictor(StrEnum):
    """What tells how long a step will take."""

    ONLINE = "online"  # measured steps
    FITTED = "fitted"  # the published fit for Llama3-8B on an A100


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadlineParams:
    """Parameters of `deadline`. Times are seconds, in a tape units."""

    alpha: float = param(0.008, "time that a prompt token still to compute counts; 0 = earliest deadline first")
    ttft: float = param(6.0, "first token due after, for a request that brings no target")
    tbt: float = param(0.05, "gap between tokens due")
    tbt_batch: float = param(0.05, "the same for requests of which only the end is due")
    predictor: Predictor = param(Predictor.ONLINE, "online (measured steps) or fitted (published; as in a tape)")
    prefill_throughput: float = param(8500.0, "prompt tokens per unit of time assumed at first")
    chunk_size: int = param(0, "tokens of a step if not by slack; 0 = by slack")
    max_num_batched_tokens: int = param(2552, "most tokens of a step, but for decodes alone")
    max_num_seqs: int = param(256, "most sequences running at once")

    def __post_init__(self) -> None:
        """Check the bounds."""
        for name in ("alpha", "ttft", "tbt", "tbt_batch"):
            at_least(name, getattr(self, name), 0.0)
        at_least("prefill_throughput", self.prefill_throughput, 1e-6)
        at_least("chunk_size", self.chunk_size, 0)
        at_least("max_num_batched_tokens", self.max_num_batched_tokens, max(1, self.chunk_size))
        at_least("max_num_seqs", self.max_num_seqs, 1)


class Deadline(Policy):
    """All decodes, then prompts by deadline and length in what time is left; hopeless ones wait behind the others."""

    Params = DeadlineParams
    axes = Axes(
        order="deadline + α × prompt left; who cannot make it any more goes behind",
        sharing="all decodes, then chunks in the tightest decode's slack",
        reservation="prompt, at its first chunk",
        shortage="recompute prompts under way, last in order first, then decodes with most slack",
    )
    source = "Niyama/QoServe, arXiv 2503.22562, ASPLOS'26"

    def __init__(self, params: DeadlineParams) -> None:
        self._params = params
        self._terms = Terms(Promises(ttft=params.ttft, tbt=params.tbt, tbt_batch=params.tbt_batch))
        self._model = StepTimeModel()
        self._predict = fitted if params.predictor == Predictor.FITTED else measured(self._model)
        self._load = StepLoad()
        self._throughput = params.prefill_throughput
        self._latest = (0.0, 0)  # when the step before was planned, and its prompt tokens
        self._relegated: set[str] = set()

    def limits(self) -> PlanLimits:
        """The greatest chunk total, and the running sequences."""
        params = self._params
        return PlanLimits(max_tokens=params.max_num_batched_tokens, max_seqs=params.max_num_seqs, decodes_exempt=True)

    def reorders(self) -> bool:
        """Always: its order is its point."""
        return True

    def plan(self, view: View) -> StepPlan:
        """Decodes, then prompts."""
        plan = StepPlan()
        started_s, num_prefilled = self._latest
        if num_prefilled and view.now_s > started_s:
            seen = num_prefilled / (view.now_s - started_s)
            self._throughput = _DECAY * self._throughput + (1.0 - _DECAY) * seen
        self._decode(view, plan)
        num_decodes = len(plan.grants)
        if not plan.preemptions:
            self._prefill(view, plan)
        self._latest = view.now_s, sum(entry.num_tokens for entry in plan.grants[num_decodes:])
        self._load, _ = load_of(plan)
        return plan

    def on_event(self, event: Event) -> None:
        """Learn step times, and forget what ended."""
        self._terms.on_event(event)
        match event:
            case StepRecord(start_s=start_s) if event.lost:  # its batch broke, and tells nothing of time
                self._load, self._latest = StepLoad(), (start_s, 0)
            case StepRecord(start_s=start_s, end_s=end_s) if self._load.num_tokens:
                self._model.observe(self._load, end_s - start_s)
                self._load = StepLoad()
            case SequenceFinished(seq_id=seq_id):
                self._relegated.discard(seq_id)
            case _:
                pass

    def key(self, seq: Sequence) -> tuple[bool, float]:
        """Lower is served earlier."""
        work = seq.num_pending + (self._terms.expected_output(seq) if self._terms.is_batch(seq) else 0.0)
        return seq.id in self._relegated, self._terms.first_due(seq) + self._params.alpha * work

    def _decode(self, view: View, plan: StepPlan) -> None:
        decoding = [seq for seq in view.running if seq.is_decoding]
        victims = sorted(decoding, key=self._terms.next_due)
        victims += sorted((seq for seq in view.running if not seq.is_decoding), key=self.key)
        gone: set[str] = set()
        for seq in decoding:
            while seq.id not in gone and not view.ledger.take(seq, 1):
                gone.add(victims[-1].id)
                preempt(plan, view, victims.pop())
            if seq.id not in gone:
                grant(plan, Budget(), seq, 1)

    def _prefill(self, view: View, plan: StepPlan) -> None:
        """Prompts in order; one that must wait for memory lets only those pass that have theirs."""
        queue = [seq for seq in view.running if not seq.is_decoding] + list(view.waiting)
        if not queue:
            return
        heap = [(self.key(seq), at, seq) for at, seq in enumerate(queue)]
        heapq.heapify(heap)
        left = self._chunk(view, plan, heap[0][2])
        num_seqs, is_full = view.num_running, False
        while heap:
            _, at, seq = heapq.heappop(heap)
            is_new = seq.place is Place.WAITING
            if is_new and self.is_hopeless(seq, view.now_s):
                self._relegated.add(seq.id)
                heapq.heappush(heap, (self.key(seq), at, seq))
                continue
            if left <= 0:
                return
            is_full = is_full or (is_new and num_seqs + seq.num_branches > self._params.max_num_seqs)
            if is_new and is_full:
                continue
            num_tokens = min(left, view.ledger.num_pending(seq))
            if not view.ledger.take(seq, num_tokens, seq.num_tokens):
                is_full = True
                continue
            grant(plan, Budget(), seq, num_tokens)
            num_seqs += seq.num_branches if is_new else 0
            left -= num_tokens

    def is_hopeless(self, seq: Sequence, now_s: float) -> bool:
        """Whether a prompt that holds no memory yet will miss its moment even if it is served from now on."""
        if seq.id in self._relegated:
            return False
        return now_s + seq.num_pending / self._throughput > self._terms.first_due(seq)

    def _chunk(self, view: View, plan: StepPlan, top: Sequence) -> int:
        """Prompt tokens that may join the decodes."""
        decodes = [entry.seq for entry in plan.grants]
        most = self._params.max_num_batched_tokens
        if self._params.chunk_size:
            return self._params.chunk_size - len(decodes)
        slack = min((self._terms.next_due(seq) - view.now_s for seq in decodes), default=math.inf)
        mix = Mix(len(decodes), 0, sum(seq.num_computed for seq in decodes), top.num_computed)
        totals = totals_for(view.ledger.num_free * view.ledger.block_size, most)
        return prefill_tokens(slack, mix, totals, self._predict)
