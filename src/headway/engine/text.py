"""What the scheduler's tokens mean as text: where a stop string ends a sequence, and what each step adds."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from headway.core import Event, FinishReason, Sequence, SequenceFinished, TokenEmitted
from headway.core.stopping import token_stop
from headway.engine.detokenize import Detokenizer, InclusiveStopMatcher, StopMatcher
from headway.engine.outputs import Delta

log = logging.getLogger(__name__)


class TokenTexts(Protocol):
    """What is asked of a tokenizer: the bytes of a token, and whether it is a control token."""

    def token_bytes(self, token_id: int) -> bytes: ...

    def is_special(self, token_id: int) -> bool: ...


@dataclass(slots=True)
class _Track:
    """One sequence's text: what is undecided (detokenizer, matcher) and what is not yet collected (delta)."""

    detokenizer: Detokenizer
    matcher: StopMatcher | None
    delta: Delta

    def add(self, text: str) -> bool:
        """Take text that may end the sequence; True when a stop string did."""
        if self.matcher is None:
            self.delta.text += text
            return False
        safe, hit = self.matcher.push(text)
        self.delta.text += safe
        if hit is None:
            return False
        self.delta.stop_reason, self.matcher = hit, None
        return True

    def add_early(self, text: str) -> None:
        """Take text in which no stop string counts yet."""
        self.delta.text += text if self.matcher is None else self.matcher.pass_by(text)

    def show_held(self) -> None:
        """No more text will come: what is held back becomes no stop string."""
        if self.matcher is not None:
            self.delta.text += self.matcher.flush()


class TextStage:
    """The stop rule of a scheduler whose sequences are read as text, and the collector of that text.

    Call it once for each new token, as `sched.StopRule`; then `deltas` once per step with the events of the step. A
    sequence is known from its first token until its `SequenceFinished` was collected.
    """

    def __init__(self, tokenizer: TokenTexts) -> None:
        self._tokenizer = tokenizer
        self._tracks: dict[str, _Track] = {}

    def __call__(self, seq: Sequence) -> FinishReason | None:
        """Why `seq` ends with its newest token, already in `token_ids`; None where it goes on.

        As `token_stop`, and a stop string that is complete ends it too, though not before `min_tokens`; one found at
        the last possible token counts as STOP. A stop string is found in the output alone, never across the prompt.
        ERROR where the tokenizer fails.
        """
        track = self._tracks.get(seq.id) or self._open(seq)
        try:
            return self._judge(track, seq)
        except Exception:  # a mistake in one text must not end the engine, which serves everybody
            log.exception("request %s: token %d cannot be told as text", seq.request.id, seq.token_ids[-1])
            return FinishReason.ERROR

    def _judge(self, track: _Track, seq: Sequence) -> FinishReason | None:
        token_id = seq.token_ids[-1]
        reason = token_stop(seq)
        if reason is FinishReason.STOP:
            self._end_at_token(track, seq, token_id)
            return reason
        text = "" if token_id in seq.request.eos_ids else track.detokenizer.push(token_id)
        if reason is not None:
            text += track.detokenizer.flush()
        if seq.num_output < seq.request.params.min_tokens:
            track.add_early(text)
        elif track.add(text):
            return FinishReason.STOP
        if reason is not None:
            track.show_held()
        return reason

    def deltas(self, events: Iterable[Event]) -> list[tuple[str, Delta]]:
        """What the step added, as (request id, delta), at most one per sequence, in the order of the events.

        A token whose text is undecided waits for the next delta with text, so that ids, logprobs and text belong
        together; the last delta has all that is left. Where a sequence was aborted or failed, undecided text is
        dropped. Other events are passed over.
        """
        touched: dict[str, str] = {}
        for event in events:
            if isinstance(event, TokenEmitted):
                delta = self._tracks[event.seq_id].delta
                delta.token_ids.append(event.token_id)
                if event.logprobs is not None:
                    delta.logprobs.append(event.logprobs)
            elif isinstance(event, SequenceFinished):
                track = self._tracks.setdefault(event.seq_id, self._blank(event.choice))
                track.delta.finish_reason = event.reason
            else:
                continue
            touched[event.seq_id] = event.request_id
        collected = ((request_id, self._collect(seq_id)) for seq_id, request_id in touched.items())
        return [(request_id, delta) for request_id, delta in collected if delta is not None]

    def forget(self, seq_id: str) -> None:
        """Drop a sequence that gets no `SequenceFinished`; an unknown one is fine."""
        self._tracks.pop(seq_id, None)

    def _open(self, seq: Sequence) -> _Track:
        track = self._tracks[seq.id] = self._blank(seq.choice)
        params = seq.request.params
        if params.stop:
            matcher = InclusiveStopMatcher if params.include_stop_str_in_output else StopMatcher
            track.matcher = matcher(params.stop)
        return track

    def _blank(self, choice: int) -> _Track:
        return _Track(Detokenizer(self._tokenizer.token_bytes, self._tokenizer.is_special), None, Delta(choice))

    def _end_at_token(self, track: _Track, seq: Sequence, token_id: int) -> None:
        """The text of an end-of-text token is never shown, that of a stop token only where the request says so."""
        eos_ids, params = seq.request.eos_ids, seq.request.params
        shows = params.include_stop_str_in_output and token_id not in eos_ids
        text = track.detokenizer.push(token_id) if shows else ""
        track.add(text + track.detokenizer.flush())
        track.show_held()
        track.delta.stop_reason = None if token_id in eos_ids and not params.ignore_eos else token_id

    def _collect(self, seq_id: str) -> Delta | None:
        track = self._tracks[seq_id]
        delta = track.delta
        if delta.finish_reason is not None:
            del self._tracks[seq_id]
        elif not delta.text:
            return None
        track.delta = Delta(delta.choice)
        return delta
