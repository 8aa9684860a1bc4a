"""Who is still computing a prompt, or computes one again: sizes alone cannot tell the last chunk from a decode."""

from __future__ import annotations

from headway.core import Admitted, Event, Preempted, PreemptMethod, Sequence, SequenceFinished, TokenEmitted


class Prefilling:
    """Sequences that have emitted nothing since their admission; a policy passes its events on to `hear`."""

    def __init__(self) -> None:
        self._ids: set[str] = set()

    def __contains__(self, seq: Sequence) -> bool:
        return seq.id in self._ids

    def hear(self, event: Event) -> None:
        """Admitted in, first token out; nothing is kept of a sequence that ended."""
        match event:
            case TokenEmitted() | SequenceFinished():
                self._ids.discard(event.seq_id)
            case Admitted():
                self._ids.add(event.seq_id)
            case Preempted() if event.method is not PreemptMethod.SWAP:
                self._ids.discard(event.seq_id)
