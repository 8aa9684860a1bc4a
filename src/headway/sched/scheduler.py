"""The scheduler: owns the queues, asks the policy, carries the plan out, books the result.

It is the only writer of sequences. One thread calls it. A step is `schedule`, the executor's run, `commit`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import chain

from headway.core import (
    Arrived,
    Batch,
    Cause,
    Event,
    Finished,
    FinishReason,
    Logprobs,
    Place,
    PromptScored,
    QueueSizes,
    Rejected,
    Request,
    Said,
    Sequence,
    SequenceFinished,
    StepPlan,
    StepRecord,
    StepResult,
    Token,
    TokenEmitted,
)
from headway.kv import KVCache, Ledger
from headway.sched.asking import adopts, let_go_of, limits_of, naming, plan_of, tell
from headway.sched.handover import missed
from headway.sched.holding import HoldBack, let_pass, nobody
from headway.sched.policy import Policy
from headway.sched.queues import Queues
from headway.sched.stepping import Stepper
from headway.sched.validate import binding_limit, check_plan
from headway.sched.view import View

StopRule = Callable[[Sequence], FinishReason | None]
"""Asked after each token, which is in `token_ids` already: does the sequence end here?"""


class Scheduler:
    """Queues, policy and KV accounting of one engine."""

    def __init__(self, policy: Policy, kv: KVCache, stop: StopRule, *, name: str = "") -> None:
        self.policy = policy
        self.kv = kv
        self.queues = Queues()
        self.hold_back: HoldBack = nobody
        self._stop = stop
        self._name = name or type(policy).__name__.lower()
        self._stepper = Stepper(self.queues, kv)
        self._limits = limits_of(policy, self._name)
        self._is_heard = type(policy).on_event is not Policy.on_event
        self._step = 0
        self._record = self._between = StepRecord(0, 0.0)
        self._events: list[Event] = []
        self._scores: dict[str, list[Logprobs]] = {}
        self._aborted_in_flight: list[Sequence] = []

    def submit(self, request: Request, now_s: float) -> None:
        """Queue a request. Whether it can ever fit was checked at the door."""
        self.queues.open(request)
        self._events.append(Arrived(request, now_s))

    def abort(self, request_id: str, now_s: float, reason: FinishReason = FinishReason.ABORT) -> bool:
        """End all choices of a request in whatever state; False when it is not (or no longer) here.

        Its blocks are free on return, but for a sequence in flight: there they follow when its batch returns.
        """
        family = self.queues.families.get(request_id)
        if family is None:
            return False
        for seq in [seq for seq in family.members if seq.place is not Place.GONE]:
            if seq.place is not Place.ENDED:
                self._end(seq, reason, now_s)
                if seq.num_in_flight:
                    self._aborted_in_flight.append(seq)
            if not seq.num_in_flight:
                self._let_go(seq, now_s)
        self._release_ended(now_s)  # a batch that is returned as one may have waited for nobody else
        return True

    def refuse(self, request_id: str, reason: str, now_s: float, cause: Cause = Cause.POLICY) -> bool:
        """Refuse a request none of whose choices is on the device; False, and nothing done, where one is."""
        family = self.queues.families.get(request_id)
        living = [seq for seq in family.members if seq.place is not Place.GONE] if family else []
        if family is None or any(seq.place is not Place.WAITING for seq in living):
            return False
        for seq in living:
            self._refuse(seq)
        self.queues.close(request_id)
        self._record.rejected.append(request_id)
        self._events.append(Rejected(family.request, reason, now_s, cause))
        return True

    def change_policy(self, policy: Policy, name: str, now_s: float) -> None:
        """Go on under another policy. Nothing may be in flight, and every event must have been taken.

        A policy that adopts the old one's knowledge goes on where that stopped. For any other the device is cleared:
        running sequences wait again, first in line and with all they have emitted, and are computed anew but for what
        the prefix cache holds; the policy hears what it would have heard of them. Raises `PolicyFault` where a user's
        policy raises at that: the old one stays.
        """
        assert not self._events, "a policy is changed only when everybody has heard everything"
        limits = limits_of(policy, name)
        if not adopts(policy, self.policy, name):
            for seq in list(self.queues.ended):
                self._let_go(seq, now_s)
            tell(policy, missed(self.queues, now_s), name, self._step)
            self._stepper.clear_device(self._record, self._events)
        self.policy, self._name, self._limits = policy, name, limits
        self._is_heard = type(policy).on_event is not Policy.on_event

    def schedule(self, now_s: float) -> Batch | None:
        """Plan one step and carry the plan out; None when it computes nothing.

        Raises `PolicyFault` when a plan breaks the limits (before anything happened) or a user's policy is at fault.
        """
        queues = self.queues
        self._record = record = StepRecord(self._step, now_s)
        self._step += 1
        waiting, held = let_pass(queues, self.hold_back, now_s)
        view = View(now_s, record.step, waiting, queues.running, queues.swapped, queues.ended, Ledger(self.kv))
        plan = plan_of(self.policy, view, self._name)
        with naming(self.policy, self._name, f"made a plan that cannot be read in step {record.step}"):
            check_plan(plan, view, self._limits, self._name)
        plan.held |= held
        if plan.rejected:
            self._reject(plan, now_s)
        with naming(self.policy, self._name, f"made a plan that cannot be carried out in step {record.step}"):
            batch = self._stepper.carry_out(plan, view.ledger, record, self._events)
        limit = binding_limit(plan, self._limits, queues, self.kv) if queues.waiting else None
        if plan.notes or limit is not None or plan.held or plan.predicted_s is not None:
            record.said = Said(plan.notes, limit, plan.held, plan.predicted_s)
        record.queued = QueueSizes(len(queues.running), len(queues.waiting), len(queues.swapped))
        return batch if batch.lanes or batch.swap_out or batch.num_wasted_rows else None

    def commit(self, batch: Batch, result: StepResult, now_s: float) -> None:
        """Book what a batch computed: counters, cache, tokens, endings."""
        size = self.kv.block_size
        drawn: list[Sequence] = []
        self._record.executor_s += result.elapsed_s
        for grant, lane in zip(batch.grants, batch.lanes, strict=True):
            seq, num_tokens = grant.seq, grant.num_tokens
            seq.num_in_flight = 0
            if seq.finish_reason is not None:  # aborted while in flight
                self._stepper.drop_branches(seq.id)
                continue
            seq.num_computed += num_tokens
            if seq.num_computed % size < num_tokens:  # a block is complete
                self.kv.publish(seq.id, seq.token_ids, seq.num_computed, seq.request.cache_salt)
            if lane.prompt_logprobs is not None:
                self._score(seq, lane.start, result.prompt_logprobs.get(seq.id, []))
            if lane.draws:
                drawn += self._fork(seq) if seq.num_branches > 1 else (seq,)
        self._append(drawn, result.tokens, now_s)
        self._release_ended(now_s)

    def fail(self, batch: Batch, seq_ids: tuple[str, ...], now_s: float) -> None:
        """A step broke: end the sequences at fault (all of the batch when unknown); the others compute it again."""
        culprits = set(seq_ids) or {grant.seq.id for grant in batch.grants}
        self._record.lost |= {grant.seq.id: grant.num_tokens for grant in batch.grants}
        for grant in batch.grants:
            grant.seq.num_in_flight = 0
            self._stepper.drop_branches(grant.seq.id)
        for grant in batch.grants:
            if grant.seq.id in culprits:
                self.abort(grant.seq.request.id, now_s, FinishReason.ERROR)
        self._release_ended(now_s)

    def close_step(self, now_s: float) -> list[Event]:
        """Everything that happened since the last call, the step's record last; the policy hears it too."""
        self._record.end_s = now_s
        events, self._events = [*self._events, self._record], []
        between = self._between  # read by nobody: what happens between steps is told by events alone
        if between.finished or between.rejected or between.preempted:
            between = self._between = StepRecord(self._step, now_s)
        self._record = between
        self._tell_policy(events)
        return events

    def take_events(self) -> list[Event]:
        """Everything that happened outside a step since the last call (arrivals, aborts)."""
        events, self._events = self._events, []
        self._tell_policy(events)
        return events

    def skip(self, num_steps: int) -> None:
        """Count steps in which nothing was there to do (tapes number units)."""
        self._step += num_steps

    @property
    def has_work(self) -> bool:
        """Whether a request is waiting, running, swapped or held."""
        return not self.queues.is_empty

    def check(self) -> None:
        """Queues, blocks and counters agree."""
        self.queues.check()
        self.kv.check()
        for seq in chain(self.queues.running, self.queues.ended):
            assert self.kv.num_held(seq.id) >= self.kv.blocks_for(seq.num_computed), f"{seq.id} lacks blocks"

    def _tell_policy(self, events: list[Event]) -> None:
        if self._is_heard:
            tell(self.policy, events, self._name, self._record.step)

    def _score(self, seq: Sequence, start: int, scores: list[Logprobs]) -> None:
        """Collect prompt log probabilities row by row; announce them when the prompt is done."""
        collected = self._scores.setdefault(seq.id, [])
        del collected[start:]  # a preemption may have sent the prefill back
        collected += scores
        if seq.num_computed >= seq.num_prompt:
            rows = self._scores.pop(seq.id)[: seq.num_prompt - 1]
            self._events.append(PromptScored(seq.request.id, tuple(rows)))

    def _fork(self, seq: Sequence) -> list[Sequence]:
        """The sequences that draw from a lane: itself, and the other choices when its prompt was just computed."""
        children = self._stepper.take_branches(seq.id)
        for child in children:
            child.num_computed, child.num_cached = seq.num_computed, seq.num_cached
            self.kv.fork(seq.id, child.id)
            self.queues.join(child, seq)
        if children:
            self.kv.split_promise([seq.id, *(child.id for child in children)])
        seq.num_branches = 1
        return [seq, *children]

    def _append(self, drawn: list[Sequence], tokens: dict[str, list[Token]], now_s: float) -> None:
        """Give sequences the tokens drawn for them, up to the one that ends them. One loop: millions pass it."""
        stop, add = self._stop, self._events.append
        for seq in drawn:
            seq_id, choice, request, token_ids = seq.id, seq.choice, seq.request, seq.token_ids
            request_id, index = request.id, len(token_ids) - len(request.prompt_ids)
            for token in tokens[seq_id]:
                token_id = token.token_id
                token_ids.append(token_id)
                add(TokenEmitted(seq_id, request_id, choice, index, token_id, now_s, token.logprobs))
                if (reason := stop(seq)) is not None:
                    self._end(seq, reason, now_s)
                    break
                index += 1

    def _end(self, seq: Sequence, reason: FinishReason, now_s: float) -> None:
        seq.finish_reason = reason
        self.queues.move(seq, Place.ENDED)
        self._events.append(SequenceFinished(seq.id, seq.request.id, seq.choice, reason, now_s))

    def _release_ended(self, now_s: float) -> None:
        if self._aborted_in_flight:
            for seq in self._aborted_in_flight:
                if not seq.num_in_flight and seq.place is not Place.GONE:  # a fault may have freed it already
                    self._let_go(seq, now_s)
            self._aborted_in_flight = [seq for seq in self._aborted_in_flight if seq.num_in_flight]
        if self.queues.ended:
            ended = [seq for seq in self.queues.ended if not seq.num_in_flight]
            for seq in let_go_of(self.policy, ended, self.queues.running, self._name, self._record.step):
                self._let_go(seq, now_s)

    def _let_go(self, seq: Sequence, now_s: float) -> None:
        """Free an ended sequence's blocks; with the last one its request is over."""
        if self.kv.holds(seq.id):
            self.kv.release(seq.id)
        self.queues.move(seq, Place.GONE)
        self._stepper.forget(seq.id)
        self._scores.pop(seq.id, None)
        self._record.finished.append(seq.id)
        family = self.queues.families[seq.request.id]
        if family.is_over:
            self.queues.close(seq.request.id)
            num_output = sum(member.num_output for member in family.members)
            reason = _worst(member.finish_reason for member in family.members)
            self._events.append(Finished(seq.request, reason, num_output, family.num_cached, now_s))

    def _reject(self, plan: StepPlan, now_s: float) -> None:
        """Refuse requests with all their choices. Where one of these still runs, the refusal waits for its end."""
        busy = {grant.seq.request.id for grant in plan.grants}
        for seq, reason in plan.rejected:
            if seq.request.id not in busy:
                self.refuse(seq.request.id, reason, now_s)

    def _refuse(self, seq: Sequence) -> None:
        seq.finish_reason = FinishReason.ABORT
        self.queues.move(seq, Place.GONE)
        if self.kv.holds(seq.id):  # preempted in part
            self.kv.release(seq.id)
        self._stepper.forget(seq.id)
        self._scores.pop(seq.id, None)


def _worst(reasons: Iterable[FinishReason | None]) -> FinishReason:
    """One word for a request with several choices: a failure outweighs an abort, that a length, that a stop."""
    ranks = (FinishReason.STOP, FinishReason.LENGTH, FinishReason.DEADLINE, FinishReason.ABORT, FinishReason.ERROR)
    return max((reason for reason in reasons if reason is not None), key=ranks.index)
