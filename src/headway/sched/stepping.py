"""Carrying out a plan: queues and blocks move, and a batch comes out."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from headway.core import (
    Admitted,
    Batch,
    Draw,
    Event,
    Lane,
    Place,
    Preempted,
    Preemption,
    PreemptMethod,
    Requeue,
    Resumed,
    Sequence,
    StepPlan,
    StepRecord,
    Waste,
)
from headway.kv import KVCache, Ledger
from headway.sched.queues import Queues


class Stepper:
    """Turns checked plans into batches. The order is the ledger's: release, admit, swap in, reserve, extend."""

    def __init__(self, queues: Queues, kv: KVCache) -> None:
        self._queues = queues
        self._kv = kv
        self._draws: dict[str, tuple[Draw]] = {}
        self._branches: dict[str, list[Sequence]] = {}

    def carry_out(self, plan: StepPlan, ledger: Ledger, record: StepRecord, events: list[Event]) -> Batch:
        """Move queues and blocks as the plan says; the plan was checked, so nothing here can fail."""
        batch = Batch(record.step, [], grants=plan.grants, num_wasted_rows=len(plan.wasted))
        for entry in plan.preemptions:
            self._preempt(entry, record, events)
        if plan.preemptions:
            for gang in _by_request(entry.seq for entry in plan.preemptions if entry.method is PreemptMethod.SWAP):
                batch.swap_out += self._kv.swap_out(*gang)
        waiting = Place.WAITING  # an enum's members are slow to look up
        for grant in plan.grants:
            if grant.seq.place is waiting:
                self._admit(grant.seq, ledger, record, events)
        if plan.swap_ins:
            batch.swap_in = self._kv.swap_in(*(seq.id for seq in plan.swap_ins))
        for seq in plan.swap_ins:
            self._queues.move(seq, Place.RUNNING)
            record.swapped_in.append(seq.id)
            events.append(Resumed(seq.id, seq.request.id, record.start_s))
        for seq_id, num_blocks in ledger.reservations().items():
            self._kv.reserve(seq_id, num_blocks)
        padding = self._fill(batch, ledger.movers, record.grants)
        if padding or plan.wasted:
            record.waste = Waste(dict.fromkeys([seq.id for seq in plan.wasted], 1), padding)
        record.free_blocks = self._kv.num_free
        return batch

    def clear_device(self, record: StepRecord, events: list[Event]) -> None:
        """Send every sequence that holds memory back to the front of the queue, in the order in which they stand."""
        held = [*self._queues.running, *self._queues.swapped]
        held += [seq for seq in self._queues.waiting if self._kv.holds(seq.id)]
        for seq in reversed(held):
            self._preempt(Preemption(seq), record, events)

    def forget(self, seq_id: str) -> None:
        """Drop what is kept for a sequence that is gone."""
        self._draws.pop(seq_id, None)
        self.drop_branches(seq_id)

    def take_branches(self, seq_id: str) -> list[Sequence]:
        """The other choices that drew from this sequence's last lane; they begin to live now."""
        return self._branches.pop(seq_id, [])

    def drop_branches(self, seq_id: str) -> None:
        """The lane came to nothing: its other choices were never born."""
        for child in self._branches.pop(seq_id, []):
            self._draws.pop(child.id, None)

    def _preempt(self, entry: Preemption, record: StepRecord, events: list[Event]) -> None:
        seq = entry.seq
        match entry.method:
            case PreemptMethod.RECOMPUTE:
                if entry.cached_tokens is not None:
                    self._kv.unpublish(seq.id, entry.cached_tokens)
                self._kv.release(seq.id)
                _lose(seq, 0)
                self._wait_again(seq, entry.requeue)
                record.preempted.append(seq.id)
            case PreemptMethod.PARTIAL:
                self._kv.trim(seq.id, entry.keep_tokens)
                _lose(seq, entry.keep_tokens)
                self._wait_again(seq, entry.requeue)
                record.preempted.append(seq.id)
            case PreemptMethod.SWAP:
                self._queues.move(seq, Place.SWAPPED)
                record.swapped_out.append(seq.id)
        seq.num_preemptions += 1
        events.append(Preempted(seq.id, seq.request.id, entry.method, record.start_s, entry.price_s))

    def _wait_again(self, seq: Sequence, requeue: Requeue) -> None:
        if requeue is Requeue.FRONT:
            self._queues.move_to_front(seq)
        else:
            self._queues.move(seq, Place.WAITING)

    def _admit(self, seq: Sequence, ledger: Ledger, record: StepRecord, events: list[Event]) -> None:
        is_first = seq.num_preemptions == 0
        if not self._kv.holds(seq.id):
            hit = ledger.hit(seq)
            self._kv.admit(seq.id, hit, seq.num_prefill)
            seq.num_computed = hit.num_tokens
            if is_first:
                seq.num_cached = self._queues.families[seq.request.id].num_cached = hit.num_tokens
        self._queues.move(seq, Place.RUNNING)
        events.append(Admitted(seq.id, seq.request.id, seq.num_computed, is_first, record.start_s))

    def _fill(self, batch: Batch, movers: Collection[str], granted: dict[str, int]) -> dict[str, int]:
        """One lane per grant, in its order, noted in `granted`; returns the padding. All but `movers` have blocks."""
        tables, made, extend, add = self._kv.tables, self._draws, self._kv.extend, batch.lanes.append
        padding: dict[str, int] = {}
        for grant in batch.grants:
            seq, num_tokens = grant.seq, grant.num_tokens
            seq_id, token_ids, start = seq.id, seq.token_ids, seq.num_computed
            granted[seq_id] = seq.num_in_flight = num_tokens
            stop = start + num_tokens
            if seq_id in movers:
                batch.copies += extend(seq_id, start, stop)
            draws: tuple[Draw, ...] = ()
            if stop == len(token_ids):
                draws = (made.get(seq_id) if seq.num_branches == 1 else None) or self._draws_of(seq)
            part = token_ids[start:stop] if num_tokens > 1 else [token_ids[start]]  # a slice takes twice as long
            lane = Lane(seq_id, part, start, tables[seq_id].block_ids, draws)
            if grant.padding:
                lane.padding = padding[seq_id] = grant.padding
            if (scores := seq.request.params.prompt_logprobs) is not None and not seq.num_output:
                lane.prompt_logprobs = scores
                lane.next_id = None if draws else token_ids[stop]
            add(lane)
        return padding

    def _draws_of(self, seq: Sequence) -> tuple[Draw, ...]:
        if seq.num_branches == 1:
            return self._draw(seq)
        children = [Sequence(seq.request, choice, rank=seq.rank) for choice in range(1, seq.num_branches)]
        self._branches[seq.id] = children
        return tuple(draw for member in (seq, *children) for draw in self._draw(member))

    def _draw(self, seq: Sequence) -> tuple[Draw]:
        """What is drawn for one sequence: made once, since its token list is its own."""
        if (made := self._draws.get(seq.id)) is None:
            request = seq.request
            seed = request.params.seed or 0
            draw = Draw(seq.id, request.params, seed, seq.choice, seq.token_ids, request.num_prompt, request.eos_ids)
            made = self._draws[seq.id] = (draw,)
        return made


def _lose(seq: Sequence, keep_tokens: int) -> None:
    """All but the first tokens are to be computed again; until they are, it does not decode."""
    seq.num_computed = min(seq.num_computed, keep_tokens)
    seq.num_prefill = seq.num_tokens


def _by_request(seqs: Iterable[Sequence]) -> Iterable[list[str]]:
    """Sequence ids, those of one request together: what they share goes to the host tier once."""
    gangs: dict[str, list[str]] = {}
    for seq in seqs:
        gangs.setdefault(seq.request.id, []).append(seq.id)
    return gangs.values()
