"""Prefill for the `headway` policy: two lanes, fair turns, a gate on memory."""

from __future__ import annotations

import math
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

KEPT = 64
"""One token in so many goes to the first in rank, whoever passes it."""

CRUMB = 4
"""No long prompt is begun with less than a quarter of a step: many would be under way, and none would end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptRules:
    """What the prefill pass keeps to; a part that is None or 0 is switched off.

    `room` is what may be spent in tokens without context; one that reads context costs 1 + context × `context_price`.
    Short prompts that pass may spend `passing_room` where that is more; up to `own_short_tokens` they pass long ones of
    their own tenant, too. `put_off` are ids of requests that their tenant's others pass.
    """

    rank: Rank
    counters: VirtualCounters | None
    gate: PeakGate | None
    prefix_wait: bool
    short_tokens: int
    own_short_tokens: int
    chunk_cap: int
    num_spare_blocks: int
    may_admit: bool
    room: int
    passing_room: int
    context_price: float
    put_off: frozenset[str]


class PromptPass:
    """Spends a step's prefill budget: prompts under way in order of rank, then new ones in turn.

    While a long prompt is under way, short ones need not wait for its end. Those of other tenants go first, while
    their tenant is not ahead of what the least served received by more than twice that prompt's charge: once for the
    prompt itself, and once for a burst; such a step is kept short. Those of its own tenant, up to
    `own_short_tokens`, get half of what is left; the rest goes to everyone, so that it always moves. Those that are put
    off get what is left, and the `KEPT`th part while they are the first in rank.
    """

    def __init__(self, view: View, plan: StepPlan, budget: Budget, prompts: list[Sequence], rules: PromptRules) -> None:
        """`prompts` are the running sequences that have a prompt, or a recomputation, to work on."""
        self._view = view
        self._plan = plan
        self._budget = budget
        self._rules = rules
        self._room = rules.room if rules.context_price else min(rules.room, budget.num_tokens)
        gone = {entry.seq.id for entry in plan.preemptions}
        started = [seq for seq in prompts if seq.id not in gone]
        self._started = sorted(started, key=rules.rank)
        self._whole = self._room
        self._granted: set[str] = set()
        # However little of it is left: its tail is no reason to wait either.
        self._long = [seq for seq in self._started if 0 < rules.short_tokens < seq.num_prompt]
        self._long_ids = {seq.id for seq in self._long}
        self._lead = self._allowed_lead(rules.counters)
        self._shares = KvShares.of(view)
        on_time = [seq for seq in started if self._is_on_time(seq)]  # nobody waits for one put off
        self._underway = PrefixesUnderway(on_time, view.ledger.block_size) if rules.prefix_wait else None

    def run(self) -> None:
        """Fill the budget."""
        if not self._is_open:
            self._plan.limit = Hold.TOKENS
            return
        if self._long:
            if self._rules.counters is not None:
                self._let_pass()
            self._fill_all_but(self._room - self._room // 2, self._is_own_short)
        if self._rules.put_off:
            self._fill_all_but(-(-self._room // KEPT), self._is_on_time)
        self._fill(_anyone)

    @property
    def _is_open(self) -> bool:
        """Whether anything is left of the budget."""
        return self._room > 0 and self._budget.num_tokens > 0

    def _let_pass(self) -> None:
        """Short prompts of other tenants, in a step that ends soon after: a first token comes at a step's end.

        They may have more than the step's room (`passing_room`): chopped into many steps they would cost more, and each
        of those would keep the next one waiting. Where somebody passed, the others get at most what is left of half the
        room, and of that at least a tile, or a stream of very short prompts would cost throughput.
        """
        room = max(self._room, self._rules.passing_room)
        self._room = room
        self._fill(self._may_pass)
        num_passed = room - self._room
        self._room = max(0, self._whole - num_passed)
        if num_passed:
            self._room = min(self._room, max(LEAST_TOKENS, self._whole // 2 - num_passed))

    def _fill_all_but(self, kept: int, wants: Callable[[Sequence], bool]) -> None:
        """Fill the room, less `kept`, with those who are wanted."""
        self._room -= kept
        self._fill(wants)
        self._room += kept

    def _fill(self, wants: Callable[[Sequence], bool]) -> None:
        for seq in self._started:
            if seq.id not in self._granted and wants(seq) and self._is_open:
                num = self._affordable(seq, seq.num_pending)
                if self._view.ledger.take(seq, num):
                    self._grant(seq, num)
        if self._is_open and self._budget.num_seqs > 0:
            self._plan.limit = None if self._rules.may_admit else Hold.KV
            if self._rules.may_admit:
                self._admit(wants)
        if not self._is_open:
            self._plan.limit = Hold.TOKENS
        elif self._budget.num_seqs <= 0:
            self._plan.limit = Hold.SEQUENCES

    def _admit(self, wants: Callable[[Sequence], bool]) -> None:
        """New ones in turn; the first wanted one that does not fit ends it, so that nobody overtakes for memory.

        A tenant that has its share of the blocks is passed over: that is no lack of memory.
        """
        rules, budget = self._rules, self._budget
        turns = Turns((seq for seq in self._view.waiting if seq.id not in self._granted), rules.rank, rules.counters)
        while self._is_open and (seq := turns.take()) is not None:
            if not wants(seq):
                continue
            if self._had_better_wait(seq):
                self._plan.held[seq.id] = Hold.PREFIX_WAIT
                continue
            if self._shares is not None and not self._shares.admits(seq):
                self._plan.held[seq.id] = Hold.TENANT_SHARE
                continue
            if self._granted and self._is_crumb(seq):
                return
            if budget.num_seqs < seq.num_branches or not self._let_in(seq):
                self._plan.limit = Hold.SEQUENCES if budget.num_seqs < seq.num_branches else Hold.KV
                return
            if rules.counters is not None:
                turns.charge(rules.counters.prompt_charge(seq.request, seq.num_pending))

    def _is_crumb(self, seq: Sequence) -> bool:
        """Whether what is left is too little to begin this prompt; not for one put off, or it would never begin."""
        is_spared = self._is_short(seq) or not self._is_on_time(seq)
        return not is_spared and self._room < self._whole // CRUMB

    def _let_in(self, seq: Sequence) -> bool:
        rules, ledger = self._rules, self._view.ledger
        if rules.gate is not None and not rules.gate.admits(seq):
            return False
        num = self._affordable(seq, ledger.num_pending(seq))
        if not ledger.take(seq, num):
            return False
        if rules.num_spare_blocks and (self._view.running or self._plan.grants) and self._num_left(seq) < 0:
            ledger.give_back(seq, ledger.block_size * ledger.num_held(seq) if seq.num_computed else None)
            return False
        self._budget.num_seqs -= seq.num_branches
        self._grant(seq, num)
        if rules.gate is not None:
            rules.gate.add(seq)
        if self._underway is not None and self._is_on_time(seq):
            self._underway.add(seq)
        if self._shares is not None:
            self._shares.admit(seq)
        return True

    def _num_left(self, seq: Sequence) -> int:
        """Free blocks beyond the spare ones when all prompts under way, with this one, have been computed."""
        ledger = self._view.ledger
        prompts = {one.id: one for one in (*self._started, *(entry.seq for entry in self._plan.grants), seq)}
        num_owed = sum(max(0, ledger.blocks_for(one.num_tokens) - ledger.num_held(one)) for one in prompts.values())
        return ledger.num_free - num_owed - self._rules.num_spare_blocks

    def _allowed_lead(self, counters: VirtualCounters | None) -> float:
        """The counter up to which a tenant's short prompts may pass.

        A great weight can make a long prompt's charge less than that of a short one of others: no lead is less than
        twice the charge that the longest short one has at weight 1.
        """
        if counters is None or not self._long:
            return 0.0
        tenants = {seq.request.tenant for seq in (*self._started, *self._view.waiting)}
        charge = max(counters.prompt_charge(seq.request, seq.num_prompt) for seq in self._long)
        return min(map(counters.received, tenants)) + 2.0 * max(charge, self._rules.short_tokens)

    def _grant(self, seq: Sequence, num: int) -> None:
        self._granted.add(seq.id)
        grant(self._plan, self._budget, seq, num)
        self._room -= math.ceil(num * self._price(seq.num_tokens - seq.num_pending, num))

    def _affordable(self, seq: Sequence, num_pending: int) -> int:
        """Tokens of a prompt that the room and the caps leave it; one at least."""
        num = min(capped(num_pending, self._rules.chunk_cap), self._budget.num_tokens)
        return min(num, max(1, int(self._room / self._price(seq.num_tokens - num_pending, min(num, self._room)))))

    def _price(self, start: int, num: int) -> float:
        """What a token costs on average, of `num` behind `start`."""
        return 1.0 + self._rules.context_price * (start + 0.5 * num)

    def _had_better_wait(self, seq: Sequence) -> bool:
        return self._underway is not None and self._underway.covers(seq, self._view.ledger.hit(seq).num_tokens)

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
        return is_own and self._is_short(seq) and seq.num_pending <= self._rules.own_short_tokens

    def _is_on_time(self, seq: Sequence) -> bool:
        return seq.request.id not in self._rules.put_off

    def _is_short(self, seq: Sequence) -> bool:
        return not self._rules.short_tokens or (
            seq.num_pending <= self._rules.short_tokens and seq.id not in self._long_ids
        )


def resume_swapped(view: View, plan: StepPlan, budget: Budget, rank: Rank, room: int) -> int:
    """Swapped sequences come back in order of rank, decodes and prompts alike; the first that does not fit ends it.

    Returns what they leave of the room for prefill.
    """
    for seq in sorted(view.swapped, key=rank):
        num = min(seq.num_pending, budget.num_tokens, room)
        if num <= 0 or budget.num_seqs < seq.num_branches or not view.ledger.take_swap_in(seq, num):
            break
        budget.num_seqs -= seq.num_branches
        room -= num
        plan.swap_ins.append(seq)
        grant(plan, budget, seq, num)
    return room


def _anyone(_: Sequence) -> bool:
    return True
