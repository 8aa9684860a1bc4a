"""What a policy plans is checked before anything happens."""

from __future__ import annotations

from collections.abc import Container

from headway.core import Hold, Place, Preemption, PreemptMethod, Sequence, StepPlan
from headway.errors import PolicyFault
from headway.kv import KVCache, Ledger
from headway.sched.policy import PlanLimits
from headway.sched.queues import Queues
from headway.sched.view import View

_NOBODY: frozenset[str] = frozenset()


def check_plan(plan: StepPlan, view: View, limits: PlanLimits, policy: str) -> None:
    """Raise `PolicyFault` unless the plan is sound: known sequences, each once, paid for, within the limits."""
    leaving = {entry.seq.id for entry in plan.preemptions} if plan.preemptions else _NOBODY
    returning = {seq.id for seq in plan.swap_ins} if plan.swap_ins else _NOBODY
    num_new = sum([seq.num_branches for seq in plan.swap_ins])
    if len({grant.seq.id for grant in plan.grants}) < len(plan.grants):
        ids = [grant.seq.id for grant in plan.grants]
        twice = next(seq_id for at, seq_id in enumerate(ids) if seq_id in ids[:at])
        raise PolicyFault(policy, f"two grants for {twice}")
    taken, running = view.ledger.takes, Place.RUNNING  # an enum's members are slow to look up
    for grant in plan.grants:
        seq, num_tokens = grant.seq, grant.num_tokens
        if seq.num_in_flight:
            raise PolicyFault(policy, f"{seq.id} is still in flight")
        if seq.place is running and seq.id not in leaving:
            num_pending = len(seq.token_ids) - seq.num_computed
        else:
            num_new += _num_new(seq, returning, policy)
            num_pending = view.ledger.num_pending(seq)
        if not 1 <= num_tokens <= num_pending:
            raise PolicyFault(policy, f"{num_tokens} tokens granted to {seq.id}, which has {num_pending} pending")
        if taken.get(seq.id, 0) < num_tokens:
            raise PolicyFault(policy, f"{seq.id} was granted {num_tokens} tokens without taking their blocks")
    if plan.preemptions or plan.swap_ins:
        _check_leaving(plan, view, policy)
    _check_totals(plan, limits, policy)
    if num_new and limits.max_seqs is not None:
        left = sum(entry.seq.num_branches for entry in plan.preemptions if entry.seq.place is running)
        if (num_seqs := view.num_running - left + num_new) > limits.max_seqs:
            raise PolicyFault(policy, f"{num_seqs} sequences, limit {limits.max_seqs}")


def _num_new(seq: Sequence, returning: Container[str], policy: str) -> int:
    """Sequences that a grant brings to the device; those swapped in are counted apart."""
    if seq.place in (Place.WAITING, Place.RUNNING):
        return seq.num_branches
    if seq.id not in returning:
        raise PolicyFault(policy, f"{seq.id} is {seq.place.value} and cannot be computed")
    return 0


def _check_leaving(plan: StepPlan, view: View, policy: str) -> None:
    ids = [entry.seq.id for entry in plan.preemptions]
    if len(set(ids)) != len(ids):
        raise PolicyFault(policy, f"a sequence is preempted twice: {ids}")
    for entry in plan.preemptions:
        if entry.seq.num_in_flight:
            raise PolicyFault(policy, f"{entry.seq.id} is in flight and cannot be preempted")
        if entry.seq.place not in (Place.RUNNING, Place.WAITING):
            raise PolicyFault(policy, f"{entry.seq.id} is {entry.seq.place.value} and cannot be preempted")
        if not _is_given_back(entry, view.ledger):
            raise PolicyFault(policy, f"{entry.seq.id} is preempted without giving its blocks back to the ledger")
    for seq in plan.swap_ins:
        if seq.place is not Place.SWAPPED:
            raise PolicyFault(policy, f"{seq.id} is {seq.place.value} and cannot be swapped in")


def _is_given_back(entry: Preemption, ledger: Ledger) -> bool:
    """Whether the ledger knows of it: all that is not kept. Given back whole, it may have been admitted anew."""
    if entry.method is PreemptMethod.PARTIAL:
        return entry.keep_tokens >= 0 and ledger.num_held(entry.seq) <= ledger.blocks_for(entry.keep_tokens)
    return entry.seq.id in ledger.gone


def _check_totals(plan: StepPlan, limits: PlanLimits, policy: str) -> None:
    for seq, reason in plan.rejected:
        if not (isinstance(seq, Sequence) and isinstance(reason, str)):
            raise PolicyFault(
                policy,
                f"rejected has {getattr(seq, 'id', seq)!r} with {reason!r}; it must hold a sequence and why, in words",
            )
    if limits.max_lanes is not None and len(plan.grants) > limits.max_lanes:
        raise PolicyFault(policy, f"{len(plan.grants)} sequences computed, limit {limits.max_lanes}")
    num_tokens: object = plan.num_tokens
    if not isinstance(num_tokens, int):
        raise PolicyFault(policy, f"{num_tokens!r} tokens granted; they are counted in whole numbers (// divides so)")
    if limits.max_tokens is None or num_tokens <= limits.max_tokens:
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
