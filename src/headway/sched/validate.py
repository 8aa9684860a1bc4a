"""The one place where a plan is checked, before anything happens."""

from __future__ import annotations

from headway.core import Hold, Place, StepPlan
from headway.errors import PolicyFault
from headway.kv import KVCache
from headway.sched.policy import PlanLimits
from headway.sched.queues import Queues
from headway.sched.view import View


def check_plan(plan: StepPlan, view: View, limits: PlanLimits, policy: str) -> None:
    """Raise `PolicyFault` unless the plan is sound: known sequences, each once, paid for, within the limits."""
    ledger = view.ledger
    leaving = {entry.seq.id for entry in plan.preemptions}
    returning = {seq.id for seq in plan.swap_ins}
    granted: set[str] = set()
    num_new = sum(seq.num_branches for seq in plan.swap_ins)
    for grant in plan.grants:
        seq, num_tokens = grant.seq, grant.num_tokens
        if seq.id in granted:
            raise PolicyFault(policy, f"two grants for {seq.id}")
        granted.add(seq.id)
        if seq.num_in_flight:
            raise PolicyFault(policy, f"{seq.id} is still in flight")
        if seq.place is Place.WAITING:
            num_new += seq.num_branches
        elif seq.place is not Place.RUNNING and seq.id not in returning:
            raise PolicyFault(policy, f"{seq.id} is {seq.place.value} and cannot be computed")
        elif seq.id in leaving:
            num_new += seq.num_branches
        is_staying = seq.place is Place.RUNNING and seq.id not in leaving
        num_pending = seq.num_pending if is_staying else ledger.num_pending(seq)
        if not 1 <= num_tokens <= num_pending:
            raise PolicyFault(policy, f"{num_tokens} tokens granted to {seq.id}, which has {num_pending} pending")
        if ledger.taken(seq) < num_tokens:
            raise PolicyFault(policy, f"{seq.id} was granted {num_tokens} tokens without taking their blocks")
    _check_leaving(plan, policy)
    _check_totals(plan, limits, policy)
    left = sum(entry.seq.num_branches for entry in plan.preemptions if entry.seq.place is Place.RUNNING)
    if limits.max_seqs is not None and num_new and view.num_running - left + num_new > limits.max_seqs:
        raise PolicyFault(policy, f"{view.num_running - left + num_new} sequences, limit {limits.max_seqs}")


def _check_leaving(plan: StepPlan, policy: str) -> None:
    ids = [entry.seq.id for entry in plan.preemptions]
    if len(set(ids)) != len(ids):
        raise PolicyFault(policy, f"a sequence is preempted twice: {ids}")
    for entry in plan.preemptions:
        if entry.seq.num_in_flight:
            raise PolicyFault(policy, f"{entry.seq.id} is in flight and cannot be preempted")
        if entry.seq.place not in (Place.RUNNING, Place.WAITING):
            raise PolicyFault(policy, f"{entry.seq.id} is {entry.seq.place.value} and cannot be preempted")
    for seq in plan.swap_ins:
        if seq.place is not Place.SWAPPED:
            raise PolicyFault(policy, f"{seq.id} is {seq.place.value} and cannot be swapped in")


def _check_totals(plan: StepPlan, limits: PlanLimits, policy: str) -> None:
    if limits.max_lanes is not None and len(plan.grants) > limits.max_lanes:
        raise PolicyFault(policy, f"{len(plan.grants)} sequences computed, limit {limits.max_lanes}")
    if limits.max_tokens is None or plan.num_tokens <= limits.max_tokens:
        return
    if limits.decodes_exempt and all(grant.num_tokens == 1 for grant in plan.grants):
        return
    raise PolicyFault(policy, f"{plan.num_tokens} tokens granted, budget {limits.max_tokens}")


def binding_limit(plan: StepPlan, limits: PlanLimits, queues: Queues, kv: KVCache) -> Hold:
    """What kept those who still wait after a step: what the policy says, else the first limit that is reached."""
    if plan.limit is not None:
        return plan.limit
    if limits.max_tokens is not None and plan.num_tokens >= limits.max_tokens:
        return Hold.TOKENS
    num_running = len(queues.running)
    if limits.max_seqs is not None and num_running + queues.waiting[0].num_branches > limits.max_seqs:
        return Hold.SEQUENCES
    if plan.preemptions or kv.num_free < kv.blocks_for(queues.waiting[0].num_pending):
        return Hold.KV
    return Hold.POLICY
