"""SGLang: prefill first, in an order that suits the radix cache; optimistic admission, retraction (ALGORITHMS §9)."""

from __future__ import annotations

import random
from dataclasses import dataclass
from enum import StrEnum

from headway.core import Requeue, Sequence, StepPlan
from headway.errors import BadSetting
from headway.sched.fill import Budget, grant, preempt
from headway.sched.params import at_least, between, param
from headway.sched.parts.newtokens import NewTokenRatio, PrefillRoom, most_output, output_left, retraction_order
from headway.sched.parts.prefix_order import heaviest_branch_first, longest_prefix_first, siblings
from headway.sched.policy import Axes, PlanLimits, Policy
from headway.sched.view import View

MAX_MATCHED = 128
"""A longer queue is taken as it came: matching it against the cache each step would cost more than it brings."""


class Order(StrEnum):
    """Who is admitted first."""

    LPM = "lpm"  # longest cached prefix
    DFS_WEIGHT = "dfs-weight"  # depth first through the cache, heavier branches first
    LOF = "lof"  # longest output
    FCFS = "fcfs"
    RANDOM = "random"


@dataclass(frozen=True, slots=True, kw_only=True)
class SglangParams:
    """Parameters of `sglang`."""

    order: Order = param(Order.LPM, "lpm, dfs-weight, lof (longest output), fcfs or random")
    seed: int = param(0, "of order=random")
    chunked_prefill_size: int = param(2048, "prompt tokens of a step, the last prompt cut to fit; 0 = uncut")
    max_prefill_tokens: int = param(16384, "prompt tokens of a step, prompts whole; a longer prompt runs alone")
    max_running_requests: int = param(256, "most sequences running at once")
    mixed_chunk: bool = param(False, "decodes join a prefill step, and use up its tokens first")
    new_token_ratio: float = param(0.7, "share of the output left that running sequences are assumed to need, at first")
    min_new_token_ratio: float = param(0.098, "the least that this share decays to")
    decay_steps: int = param(600, "decode steps in which it would decay to the least")
    in_batch_threshold: int = param(32, "put off who shares so many uncached tokens with somebody waiting; 0 = nobody")

    def __post_init__(self) -> None:
        """Check the bounds."""
        at_least("chunked_prefill_size", self.chunked_prefill_size, 0)
        at_least("max_prefill_tokens", self.max_prefill_tokens, 1)
        at_least("max_running_requests", self.max_running_requests, 1)
        between("new_token_ratio", self.new_token_ratio, 0.0, 1.0)
        between("min_new_token_ratio", self.min_new_token_ratio, 0.0, 1.0)
        at_least("decay_steps", self.decay_steps, 1)
        at_least("in_batch_threshold", self.in_batch_threshold, 0)
        low, high = self.min_new_token_ratio, self.new_token_ratio
        if low > high:
            raise BadSetting(f"min_new_token_ratio is {low}, above new_token_ratio, which is {high}")


class Sglang(Policy):
    """Prompts before decodes, longest cached prefix first; when memory runs out, who made least is retracted."""

    Params = SglangParams
    axes = Axes(
        order="longest cached prefix, or depth first through the cache",
        sharing="prefill first, decodes in steps of their own unless mixed",
        reservation="prompt + max_output of new ones, a learnt share of it for running ones",
        shortage="retract who has the fewest outputs",
    )
    source = "SGLang schedule_policy and scheduler, arXiv 2312.07104"

    def __init__(self, params: SglangParams) -> None:
        self._params = params
        self._ratio = NewTokenRatio(params.new_token_ratio, params.min_new_token_ratio, params.decay_steps)

    def limits(self) -> PlanLimits:
        """Prompt tokens of a step where they are cut, and the running sequences."""
        size = self._params.chunked_prefill_size
        return PlanLimits(max_tokens=size or None, max_seqs=self._params.max_running_requests, decodes_exempt=True)

    def reorders(self) -> bool:
        """Unless order is fcfs."""
        return self._params.order != Order.FCFS

    def plan(self, view: View) -> StepPlan:
        """A prefill step if anything can be prefilled, else a decode step."""
        plan = StepPlan()
        decoding = [seq for seq in view.running if seq.is_decoding]
        size, page = self._params.chunked_prefill_size, view.ledger.block_size
        room = PrefillRoom(
            num_free_tokens=float(view.ledger.num_free * page),
            owed=sum(output_left(seq) for seq in decoding) * self._ratio.value,
            input_tokens=self._params.max_prefill_tokens,
            chunk_tokens=size or None,
            page=page,
            align=page if size >= page else 1,
        )
        if self._params.mixed_chunk:
            self._decode(view, plan, decoding)
            room.spend_mixed(len(plan.grants))
        num_mixed = len(plan.grants)
        if not plan.preemptions:
            self._prefill(view, plan, room)
        if len(plan.grants) == num_mixed:
            if not self._params.mixed_chunk:
                self._decode(view, plan, decoding)
            self._ratio.after_decode(plan)
        if view.running and not (plan.grants or plan.preemptions):
            preempt(plan, view, view.running[-1], requeue=Requeue.BACK)  # prompts that block each other
        return plan

    def _prefill(self, view: View, plan: StepPlan, room: PrefillRoom) -> None:
        """Prompts under way first, then new ones in order, as far as the room goes."""
        for seq in (seq for seq in view.running if not seq.is_decoding):
            num_tokens = room.cut(seq.num_pending)
            if num_tokens <= 0 or not view.ledger.take(seq, num_tokens):
                return
            grant(plan, Budget(), seq, num_tokens)
            room.spend(num_tokens, most_output(seq) if num_tokens == seq.num_pending else 0)
        num_seqs = view.num_running
        for seq in self._ordered(view) if room.is_open else ():
            num_seqs += seq.num_branches
            is_full = num_seqs > self._params.max_running_requests or not room.is_open
            if is_full or not self._admit(view, plan, room, seq):
                return

    def _admit(self, view: View, plan: StepPlan, room: PrefillRoom, seq: Sequence) -> bool:
        """Grant a new prompt, or the chunk of it that fits; False when the batch ends with or before it."""
        ledger, output = view.ledger, most_output(seq)
        extend, is_alone = ledger.num_pending(seq), not (plan.grants or view.running)
        if not is_alone and not room.holds(extend, output):
            return False
        num_tokens = room.cut(extend)
        free = ledger.num_free
        if num_tokens <= 0 or not ledger.take(seq, num_tokens):
            return False
        num_new = ledger.num_held(seq) - len(ledger.hit(seq).block_ids)
        room.pin((free - ledger.num_free - num_new) * ledger.block_size)  # its hit can no longer be evicted
        if not is_alone and not room.holds(extend, output):
            ledger.give_back(seq)
            return False
        grant(plan, Budget(), seq, num_tokens)
        room.spend(num_tokens, output if num_tokens == extend else 0)
        return num_tokens == extend

    def _decode(self, view: View, plan: StepPlan, decoding: list[Sequence]) -> None:
        """A token for everyone; where they do not fit, retract until they do, but never the last one."""
        losers, others = retraction_order(decoding), [seq for seq in view.running if not seq.is_decoding]
        gone: set[str] = set()
        for seq in decoding:
            while seq.id not in gone and not view.ledger.take(seq, 1):
                victim = losers.pop() if len(losers) > 1 or not others else others.pop()
                gone.add(victim.id)
                preempt(plan, view, victim, requeue=Requeue.BACK)
                plan.preemptions[-1].cached_tokens = victim.num_prefill
            if seq.id not in gone:
                grant(plan, Budget(), seq, 1)

    def _ordered(self, view: View) -> list[Sequence]:
        waiting = list(view.waiting)
        find = view.ledger.hit
        match self._params.order:
            case Order.LOF:
                return sorted(waiting, key=lambda seq: -seq.request.max_output)
            case Order.RANDOM:
                random.Random(f"{self._params.seed}:{view.step}").shuffle(waiting)
                return waiting
            case Order.LPM if len(waiting) <= MAX_MATCHED:
                ordered = longest_prefix_first(waiting, find)
            case Order.DFS_WEIGHT:
                ordered = heaviest_branch_first(waiting, find)
            case _:
                return waiting
        later = siblings(waiting, find, self._params.in_batch_threshold)
        return sorted(ordered, key=lambda seq: seq.id in later)
