"""FastServe: skip-join multi-level feedback queues, preemption at every step, swaps ahead of need (ALGORITHMS §5)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from itertools import chain
from math import inf

from headway.core import Batch, Event, PreemptMethod, Sequence, SequenceFinished, StepPlan, StepRecord
from headway.errors import BadSetting
from headway.sched.fill import preempt, run_in_order
from headway.sched.params import at_least, between, param
from headway.sched.parts.meter import load_of
from headway.sched.parts.mlfq import Demote, FeedbackQueues
from headway.sched.parts.steptime import StepLoad, StepTimeModel
from headway.sched.policy import Axes, PlanLimits, Policy
from headway.sched.view import View


class Swap(StrEnum):
    """When sequences outside the batch move to the host tier."""

    PROACTIVE = "proactive"  # as soon as free blocks run low, and back before their turn
    REACTIVE = "reactive"  # when the batch lacks blocks


@dataclass(frozen=True, slots=True, kw_only=True)
class FastServeParams:
    """Parameters of `fastserve`. Times are seconds, in a tape units."""

    first_quantum: float = param(0.01, "quantum of the highest level, about one decode step (in a tape 1)")
    ratio: float = param(2.0, "quantum of a level ÷ that of the level above")
    num_levels: int = param(10, "levels (in a tape 4)")
    skip_join: bool = param(True, "new requests enter the level that their prompt deserves, not the highest")
    promote_after: float = param(
        0.3, "time without a run after which a sequence rises to the top; 0 = never (as in a tape)"
    )
    max_batch_size: int = param(16, "sequences computed in a step")
    max_tokens_per_batch: int = param(
        2048, "prompt tokens computed in a step; a longer prompt runs as the first of its batch"
    )
    init_unit: int = param(0, "prompt tokens computed in one unit of time (in a tape 1); 0 = measure the steps")
    demote: Demote = param(
        Demote.PAPER, "paper: once the quantum is used up, to the back; repo: once exceeded, to the front"
    )
    swap: Swap = param(
        Swap.PROACTIVE, "proactive keeps max(max_batch_size, min_free_blocks) blocks free; reactive none"
    )
    min_free_blocks: int = param(0, "blocks kept free by proactive swapping, if more than max_batch_size")

    def __post_init__(self) -> None:
        """Check the bounds."""
        between("first_quantum", self.first_quantum, 1e-6, 1e9)
        between("ratio", self.ratio, 1.0, 1000.0)
        between("num_levels", self.num_levels, 1, 64)
        at_least("promote_after", self.promote_after, 0.0)
        at_least("max_batch_size", self.max_batch_size, 1)
        at_least("max_tokens_per_batch", self.max_tokens_per_batch, 1)
        at_least("init_unit", self.init_unit, 0)
        at_least("min_free_blocks", self.min_free_blocks, 0)
        if self.min_free_blocks and self.swap == Swap.REACTIVE:
            raise BadSetting(f"min_free_blocks is {self.min_free_blocks}, but swap=reactive keeps no block free")


class FastServe(Policy):
    """Skip-join MLFQ: short work first without knowing lengths; who has run long falls behind and may be swapped."""

    Params = FastServeParams
    axes = Axes(
        order="level of attained service, new requests at the level of their prompt",
        sharing="the first max_batch_size of that order, prompts uncut",
        reservation="as it grows; blocks kept free for newcomers",
        shortage="swap out who will run last (largest ENST), recompute if the host tier is full",
    )
    source = "FastServe, arXiv 2305.05920, and its repository"

    def __init__(self, params: FastServeParams) -> None:
        self._params = params
        self._queues = FeedbackQueues(params.first_quantum, params.ratio, params.num_levels, params.demote)
        self._after = params.promote_after or inf
        self._model = StepTimeModel()
        self._load = StepLoad()

    def limits(self) -> PlanLimits:
        """The batch size; memory alone bounds the sequences that wait on the device."""
        return PlanLimits(max_lanes=self._params.max_batch_size)

    def reorders(self) -> bool:
        """Always: its order is its point."""
        return True

    def units(self, batch: Batch) -> float:
        """A step lasts as its most expensive member: a prompt its share of `init_unit`, a decode 1."""
        return float(max((-(-len(lane.token_ids) // (self._params.init_unit or 1)) for lane in batch.lanes), default=1))

    def plan(self, view: View) -> StepPlan:
        """The head of the queues runs; whoever waits longest for its next run makes room."""
        plan = StepPlan()
        seqs = {seq.id: seq for seq in chain(view.running, view.swapped, view.waiting)}
        for seq in seqs.values():
            if seq.id not in self._queues:
                self._queues.join(seq.id, view.now_s, self._first_run(seq) if self._params.skip_join else 0.0)
        self._queues.promote(view.now_s, self._after)
        batch = self._batch(view, seqs)
        ids = {seq.id for seq, _ in batch}
        run_in_order(view, plan, batch, self._by_next_run(view, [seq for seq in view.running if seq.id not in ids]))
        if self._params.swap == Swap.PROACTIVE:
            self._swap_ahead(view, plan)
        self._load, _ = load_of(plan)
        return plan

    def on_event(self, event: Event) -> None:
        """Book what ran, and forget what ended."""
        match event:
            case StepRecord(grants=grants, start_s=start_s, end_s=end_s) if grants:
                for seq_id in grants:
                    if seq_id in self._queues:
                        self._queues.ran(seq_id, end_s - start_s, end_s)
                if not event.lost:  # a batch that broke tells nothing of time
                    self._model.observe(self._load, end_s - start_s)
            case SequenceFinished(seq_id=seq_id):
                self._queues.leave(seq_id)
            case _:
                pass

    def _first_run(self, seq: Sequence) -> float:
        """How long its prompt will take: given, measured, or not known yet."""
        num = seq.num_prompt
        if self._params.init_unit:
            return float(-(-num // self._params.init_unit))
        return self._model.predict(StepLoad(num, num * (num + 1) // 2, 1)) if self._model.is_ready else 0.0

    def _batch(self, view: View, seqs: dict[str, Sequence]) -> list[tuple[Sequence, int]]:
        """The head of the queues: sequences, and the tokens that each has to compute."""
        batch: list[tuple[Sequence, int]] = []
        left = self._params.max_tokens_per_batch
        for seq in (seqs[seq_id] for seq_id in self._queues if seq_id in seqs):
            num = view.ledger.num_pending(seq)
            if batch and (num > left or len(batch) == self._params.max_batch_size):
                break
            batch.append((seq, num))
            left -= 0 if seq.is_decoding else num
        return batch

    def _swap_ahead(self, view: View, plan: StepPlan) -> None:
        """Keep blocks free for newcomers; with blocks to spare, fetch back who is to run soonest."""
        num_kept = max(self._params.max_batch_size, self._params.min_free_blocks)
        busy = {*(entry.seq.id for entry in plan.grants), *(entry.seq.id for entry in plan.preemptions)}
        idle = self._by_next_run(view, [seq for seq in view.running if seq.id not in busy])
        while idle and view.ledger.num_free < num_kept and preempt(plan, view, idle.pop(), PreemptMethod.SWAP):
            pass
        if plan.preemptions:
            return
        returning = {seq.id for seq in plan.swap_ins}
        for seq in self._by_next_run(view, [seq for seq in view.swapped if seq.id not in returning]):
            if not view.ledger.take_swap_in(seq, 0):
                return
            if view.ledger.num_free < num_kept:
                view.ledger.give_back(seq)
                return
            plan.swap_ins.append(seq)

    def _by_next_run(self, view: View, seqs: list[Sequence]) -> list[Sequence]:
        """Soonest first; of two equal ones the one behind in its queue comes later."""
        place = {seq_id: at for at, seq_id in enumerate(self._queues)}
        size = self._params.max_batch_size
        waits = self._queues.next_runs([seq.id for seq in seqs], view.now_s, after=self._after, max_batch_size=size)
        return sorted(seqs, key=lambda seq: (waits[seq.id], place[seq.id]))
