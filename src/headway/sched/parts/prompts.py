"""Prefill for the `headway` policy: two lanes, fair turns, a gate on memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from headway.core import Hold, Sequence, StepPlan
from headway.sched.fill import Budget, capped, grant
from headway.sched.parts.admission import PeakGate
from headway.sched.parts.controller import LEAST_TOKENS
from headway.sched.parts.fairness import VirtualCounters
from headway.sched.parts.shares import KvShares
from headway.sched.parts.siblings import PrefixesUnderway
from headway.sched.parts.standing import Rank, Turns
from headway.sched.view import View


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptRules:
    """What the prefill pass keeps to; a part that is None or 0 is switched off."""

    rank: Rank
    counters: VirtualCounters | None
    gate: PeakGate | None
    underway: PrefixesUnderway | None
    short_tokens: int
    chunk_cap: int
    num_spare_blocks: int
    may_admit: bool


class PromptPass:
    """Spends a step's prefill budget: prompts under way in order of rank, then new ones in turn.

    While a long prompt is under way, short ones need not wait for its end. Those of other tenants go first, while
    their tenant is not ahead of the least served by more than twice that prompt's charge: once for the prompt itself,
    which is charged whole when it begins, and once for a burst; such a step is kept short. Those of its own tenant get
    half of what is left; the rest goes to everyone, so that it always moves.
    """

    def __init__(self, view: View, plan: StepPlan, budget: Budget, prompts: list[Sequence], rules: PromptRules) -> None:
        """`prompts` are the running sequences that have a prompt, or a recomputation, to work on."""
        self._view = view
        self._plan = plan
        self._budget = budget
        self._rules = rules
        gone = {entry.seq.id for entry in plan.preemptions}
        started = [seq for seq in prompts if seq.id not in gone]
        self._started = sorted(started, key=rules.rank)
        self._granted: set[str] = set()
        # However little of it is left: its tail is no reason to wait either.
        self._long = [seq for seq in self._started if 0 < rules.short_tokens < seq.num_prompt]
        self._long_ids = {seq.id for seq in self._long}
        self._lead = self._allowed_lead(rules.counters)
        self._shares = KvShares.of(view)

    def run(self) -> None:
        """Fill the budget."""
        whole = self._budget.num_tokens
        if whole <= 0:
            self._plan.limit = Hold.TOKENS
            return
        if self._long:
            if self._rules.counters is not None:
                self._fill(self._may_pass)
                self._end_soon(whole)
            rest = self._budget.num_tokens - self._budget.num_tokens // 2
            self._budget.num_tokens -= rest
            self._fill(self._is_own_short)
            self._budget.num_tokens += rest
        self._fill(_anyone)

    def _end_soon(self, whole: int) -> None:
        """Where somebody passed, the step is cut to half of the budget: a first token comes at a step's end.

        No shorter, or a stream of very short prompts would cost throughput; and a tile is always left for the others.
        """
        num_passed = whole - self._budget.num_tokens
        if num_passed:
            self._budget.num_tokens = min(self._budget.num_tokens, max(LEAST_TOKENS, whole // 2 - num_passed))

    def _fill(self, wants: Callable[[Sequence], bool]) -> None:
        for seq in self._started:
            if seq.id not in self._granted and wants(seq) and self._budget.num_tokens > 0:
                num = min(capped(seq.num_pending, self._rules.chunk_cap), self._budget.num_tokens)
                if self._view.ledger.take(seq, num):
                    self._grant(seq, num)
        if self._budget.num_tokens > 0 and self._budget.num_seqs > 0:
            self._plan.limit = None if self._rules.may_admit else Hold.KV
            if self._rules.may_admit:
                self._admit(wants)
        if self._budget.num_tokens <= 0:
            self._plan.limit = Hold.TOKENS
        elif self._budget.num_seqs <= 0:
            self._plan.limit = Hold.SEQUENCES

    def _admit(self, wants: Callable[[Sequence], bool]) -> None:
        """New ones in turn; the first wanted one that does not fit ends it, so that nobody overtakes for memory.

        A tenant that has its share of the blocks is passed over: that is no lack of memory.
        """
        rules, budget = self._rules, self._budget
        turns = Turns((seq for seq in self._view.waiting if seq.id not in self._granted), rules.rank, rules.counters)
        while budget.num_tokens > 0 and (seq := turns.take()) is not None:
            if not wants(seq):
                continue
            if self._had_better_wait(seq):
                self._plan.held[seq.id] = Hold.PREFIX_WAIT
                continue
            if self._shares is not None and not self._shares.admits(seq):
                self._plan.held[seq.id] = Hold.TENANT_SHARE
                continue
            if budget.num_seqs < seq.num_branches or not self._let_in(seq):
                self._plan.limit = Hold.SEQUENCES if budget.num_seqs < seq.num_branches else Hold.KV
                return
            if rules.counters is not None:
                turns.charge(rules.counters.prompt_charge(seq.request, seq.num_pending))

    def _let_in(self, seq: Sequence) -> bool:
        rules, ledger = self._rules, self._view.ledger
        if rules.gate is not None and not rules.gate.admits(seq):
            return False
        num = min(capped(ledger.num_pending(seq), rules.chunk_cap), self._budget.num_tokens)
        if not ledger.take(seq, num):
            return False
        if ledger.num_free < rules.num_spare_blocks and (self._view.running or self._plan.grants):
            ledger.give_back(seq, ledger.block_size * ledger.num_held(seq) if seq.num_computed else None)
            return False
        self._budget.num_seqs -= seq.num_branches
        self._grant(seq, num)
        if rules.gate is not None:
            rules.gate.add(seq)
        if rules.underway is not None:
            rules.underway.add(seq)
        if self._shares is not None:
            self._shares.admit(seq)
        return True

    def _allowed_lead(self, counters: VirtualCounters | None) -> float:
        """The counter up to which a tenant's short prompts may pass."""
        if counters is None or not self._long:
            return 0.0
        tenants = {seq.request.tenant for seq in (*self._started, *self._view.waiting)}
        charge = max(counters.prompt_charge(seq.request, seq.num_prompt) for seq in self._long)
        return min(map(counters.of, tenants)) + 2.0 * max(charge, self._rules.short_tokens)

    def _grant(self, seq: Sequence, num: int) -> None:
        self._granted.add(seq.id)
        grant(self._plan, self._budget, seq, num)

    def _had_better_wait(self, seq: Sequence) -> bool:
        underway = self._rules.underway
        return underway is not None and underway.covers(seq, self._view.ledger.hit(seq).num_tokens)

    def _may_pass(self, seq: Sequence) -> bool:
        """Whether a short prompt may go before the long ones of other tenants."""
        counters = self._rules.counters
        assert counters is not None, "without counters nobody knows who is ahead"
        return (
            self._is_short(seq)
            and counters.of(seq.request.tenant) <= self._lead
            and all(seq.request.tenant != long.request.tenant for long in self._long)
        )

    def _is_own_short(self, seq: Sequence) -> bool:
        """Whether a short prompt stands behind a long one of its own tenant (of anyone, where nobody counts)."""
        tenant = seq.request.tenant
        is_own = self._rules.counters is None or any(tenant == long.request.tenant for long in self._long)
        return is_own and self._is_short(seq)

    def _is_short(self, seq: Sequence) -> bool:
        return not self._rules.short_tokens or (
            seq.num_pending <= self._rules.short_tokens and seq.id not in self._long_ids
        )


def resume_swapped(view: View, plan: StepPlan, budget: Budget, rank: Rank) -> None:
    """Swapped sequences come back in order of rank, decodes and prompts alike; the first that does not fit ends it."""
    for seq in sorted(view.swapped, key=rank):
        num = min(seq.num_pending, budget.num_tokens)
        if num <= 0 or budget.num_seqs < seq.num_branches or not view.ledger.take_swap_in(seq, num):
            return
        budget.num_seqs -= seq.num_branches
        plan.swap_ins.append(seq)
        grant(plan, budget, seq, num)


def _anyone(_: Sequence) -> bool:
    return True
