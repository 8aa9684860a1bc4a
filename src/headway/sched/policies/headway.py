"""Ours: decodes first, prefill sized to the time that is left, admission by predicted peak, shortage by cost."""

from __future__ import annotations

from dataclasses import dataclass, replace

from headway.core import Event, Finished, FinishReason, Sequence, StepPlan, StepRecord, TokenEmitted
from headway.sched.fill import NO_LIMIT, Budget, fill_decodes, grant, is_preempted, preempt
from headway.sched.params import at_least, between, between_or_off, param
from headway.sched.parts import (
    BudgetController,
    OutputLengths,
    PeakGate,
    PromptPass,
    PromptRules,
    PutOff,
    Rank,
    ReceivedCounters,
    StepLoad,
    StepMeter,
    add_load,
    ranking,
    relieve,
    resume_swapped,
)
from headway.sched.policy import Axes, PlanLimits, Policy
from headway.sched.view import View

_SHORT = ("short_prompt_tokens", "own_short_prompt_tokens")


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadwayParams:
    """Parameters of `headway`; each part can be switched off, so that its worth can be shown."""

    max_num_batched_tokens: int = param(2048, "most tokens of a step")
    max_num_seqs: int = param(256, "most sequences running at once")
    max_num_prefill_tokens: int = param(0, "most prefill tokens of a step; 0 = only the whole budget bounds them")
    long_prefill_token_threshold: int = param(0, "most tokens of one prompt in a step; 0 = no cap")
    kv_cache_utilization_limit: float = param(1.0, "share of the blocks that admission may plan to fill")
    itl_target_ms: float = param(0.0, "P99 inter-token latency to keep; 0 = smallest steps at full throughput")
    efficiency: float = param(0.96, "without a target, a step's share that is not its fixed cost; 1 = part off")
    shared_efficiency: float = param(0.8, "the same once several tenants have come: shorter steps, less in their way")
    overflow: float = param(0.05, "accepted probability that admitted sequences outgrow the memory; 0 = part off")
    fair: bool = param(True, "serve the tenant with the least weighted tokens first")
    age_s: float = param(10.0, "seconds of waiting that outweigh one service tier and any priority; 0 = no ageing")
    short_prompt_tokens: int = param(192, "prompts up to this have a lane of their own beside long ones; 0 = off")
    own_short_prompt_tokens: int = param(96, "of those, up to this: also beside long ones of their own tenant; 0 = off")
    put_off_share: float = param(0.045, "share of requests, and two: longest prompts, put off in an overload; 0 = off")
    prefix_wait: bool = param(True, "a request whose prefix is being computed waits for it")
    shortage_by_cost: bool = param(True, "victim and method by cost; without it, recompute the youngest")

    def __post_init__(self) -> None:
        """Check the bounds."""
        for name in ("max_num_batched_tokens", "max_num_seqs"):
            at_least(name, getattr(self, name), 1)
        for name in ("max_num_prefill_tokens", "long_prefill_token_threshold", *_SHORT):
            at_least(name, getattr(self, name), 0)
        for name, most in (("itl_target_ms", 1e6), ("age_s", 1e6), ("overflow", 0.5), ("put_off_share", 0.5)):
            between_or_off(name, getattr(self, name), 1e-9, most)
        for name, least in (("kv_cache_utilization_limit", 0.05), ("efficiency", 0.1), ("shared_efficiency", 0.1)):
            between(name, getattr(self, name), least, 1.0)


class Headway(Policy):
    """Stall-free decodes, a controlled prefill budget with a lane for short prompts, fair turns, and foresight."""

    Params = HeadwayParams
    axes = Axes(
        order="least-served tenant, then tier with ageing, priority, slack, arrival; short prompts beside long ones",
        sharing="all decodes, then prefill up to a controlled budget",
        reservation="this step's tokens, while the predicted peak fits",
        shortage="cheapest of partial, swap and recompute; never the first in rank; admit nobody in that step",
    )
    source = "Headway; parts from Sarathi-Serve, VTC, LightLLM and QoServe"
    honours_priority = honours_tier = overlaps = True

    def __init__(self, params: HeadwayParams) -> None:
        self._params = params
        self._controller = BudgetController(params.itl_target_ms / 1000.0 or None, params.max_num_batched_tokens)
        self.meter = StepMeter(self._controller)
        self.counters, self.honours_weight = ReceivedCounters(recompute_cost=1.0) if params.fair else None, params.fair
        self.lengths = OutputLengths()
        self.put_off = PutOff(params.put_off_share, params.age_s)

    def limits(self) -> PlanLimits:
        """Token budget and sequence cap."""
        return PlanLimits(max_tokens=self._params.max_num_batched_tokens, max_seqs=self._params.max_num_seqs)

    def on_event(self, event: Event) -> None:
        """Count service, learn output lengths, time steps."""
        if self.counters is not None:
            self.counters.on_event(event)
        if isinstance(event, TokenEmitted):  # most of all events, and of no interest to the others
            return
        self.put_off.on_event(event)
        match event:
            case StepRecord():
                self.meter.measured(event)
            case Finished(request, FinishReason.STOP | FinishReason.LENGTH, num_output, _, _):
                self.lengths.learn(request, num_output // request.params.n)

    def adopt(self, old: Policy) -> bool:
        """Other parameters but for `fair`, the same knowledge of tenants, lengths, step times and whom to put off."""
        if not isinstance(old, Headway) or (old.counters is None) != (self.counters is None):
            return False
        self.counters, self.lengths = old.counters, old.lengths
        self.meter.adopt(old.meter)
        self.put_off.adopt(old.put_off)
        return True

    def reorders(self) -> bool:
        """By tenant, tier, priority, slack and arrival."""
        return True

    def plan(self, view: View) -> StepPlan:
        """Decodes, then those swapped out, then prompts under way, then new ones."""
        params, plan = self._params, StepPlan()
        budget = Budget.of(view, params.max_num_batched_tokens, params.max_num_seqs)
        rank = ranking(view.now_s, params.age_s)
        prompts = self._decodes(view, plan, budget, rank)
        num_decodes, decodes = len(plan.grants), add_load(StepLoad(), plan.grants)
        budget.num_tokens = min(budget.num_tokens, params.max_num_prefill_tokens or NO_LIMIT)
        is_alone = self.counters is None or len(self.counters.tenants) < 2
        room = self._controller.budget(decodes, params.efficiency if is_alone else params.shared_efficiency)
        if not plan.preemptions:
            room = resume_swapped(view, plan, budget, rank, room)
        if prompts or view.waiting:
            PromptPass(view, plan, budget, prompts, self._rules(view, plan, prompts, rank, room)).run()
        if not plan.grants and not plan.preemptions:
            self._give_way(view, plan, rank)  # nobody can move: prompts under way hold all the memory
        self.meter.planned(view.step, plan, add_load(replace(decodes), plan.grants[num_decodes:]), decodes)
        return plan

    def _decodes(self, view: View, plan: StepPlan, budget: Budget, rank: Rank) -> list[Sequence]:
        """Every sequence that emits tokens goes on; where memory is short the cheapest gives way.

        Returns the others: those with a prompt to compute.
        """
        seqs = [seq for seq in view.running if not seq.num_in_flight]
        prompts = [seq for seq in seqs if not seq.is_decoding]
        decodes = [seq for seq in seqs if seq.is_decoding] if prompts else seqs
        at = fill_decodes(view, plan, budget, decodes)
        while at < len(decodes) and budget.num_tokens > 0:
            seq = decodes[at]
            while not is_preempted(plan, seq):
                if view.ledger.take(seq, 1):
                    grant(plan, budget, seq, 1)
                    break
                if not self._give_way(view, plan, rank):
                    break
            at += 1
            at += fill_decodes(view, plan, budget, decodes[at:])
        return prompts

    def _rules(self, view: View, plan: StepPlan, prompts: list[Sequence], rank: Rank, room: int) -> PromptRules:
        params, num_blocks, limit = self._params, view.ledger.num_blocks, self._params.kv_cache_utilization_limit
        num_tokens = num_blocks * view.ledger.block_size * limit
        prices, is_gated = self._controller, params.overflow and view.waiting
        return PromptRules(
            rank=rank,
            counters=self.counters,
            gate=PeakGate(self.lengths, view.running, num_tokens, params.overflow) if is_gated else None,
            prefix_wait=params.prefix_wait,
            short_tokens=params.short_prompt_tokens,
            own_short_tokens=params.own_short_prompt_tokens,
            chunk_cap=params.long_prefill_token_threshold,
            num_spare_blocks=int((1.0 - limit) * num_blocks),
            may_admit=not plan.preemptions and len(plan.swap_ins) == len(view.swapped),
            room=room,
            passing_room=0 if params.itl_target_ms else params.short_prompt_tokens,
            context_price=prices.context_price,
            put_off=self.put_off.choose([*prompts, *view.waiting], prices, view.ledger.num_pending, view.now_s),
        )

    def _give_way(self, view: View, plan: StepPlan, rank: Rank) -> bool:
        if self._params.shortage_by_cost or not view.running:  # the queue alone holds memory
            return relieve(view, plan, self.meter.prices, rank)
        left = [seq for seq in view.running if not seq.num_in_flight and not is_preempted(plan, seq)]
        return len(left) > 1 and preempt(plan, view, left[-1])
