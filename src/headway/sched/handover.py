"""A policy that comes into office late hears what it would have heard."""

from __future__ import annotations

from collections.abc import Iterator

from headway.core import Admitted, Arrived, Event, Place, Preempted, PreemptMethod, Sequence, TokenEmitted
from headway.sched.queues import Queues


def missed(queues: Queues, now_s: float) -> Iterator[Event]:
    """Of every living request: its arrival, its admission, its tokens, and that it was sent back."""
    for family in queues.families.values():
        yield Arrived(family.request, family.request.arrival_s)
        living = [seq for seq in family.members if seq.place is not Place.GONE]
        for seq in living[:1]:  # a request is admitted once, whichever of its choices is left to say so
            if seq.num_preemptions or seq.place is not Place.WAITING:
                yield Admitted(seq.id, seq.request.id, seq.num_cached, is_first=True, at_s=now_s)
        for seq in living:
            yield from _past(seq, now_s)


def _past(seq: Sequence, now_s: float) -> list[Event]:
    request_id = seq.request.id
    events: list[Event] = []
    for index, token_id in enumerate(seq.token_ids[seq.num_prompt :]):
        events.append(TokenEmitted(seq.id, request_id, seq.choice, index, token_id, now_s))
    if seq.place is Place.WAITING and seq.num_preemptions:
        events.append(Preempted(seq.id, request_id, PreemptMethod.RECOMPUTE, now_s))
    return events
