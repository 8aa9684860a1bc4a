"""Traffic as it was, without a word of it: one line per request, in a file that is a workload.

Lengths, times, tenants and outcomes; of prompts only which blocks they shared. `headway.workload.read_trace` reads
the file, so `simulate`, `bench` and `tune` take it.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from headway.core import Event, Refusal, Rejected, StepRecord
from headway.obs.latency import LatencyTracker, Lifetime
from headway.obs.prefix_ids import prefix_ids
from headway.obs.rotating import RETRY_S, LineWriter, RotatingFile

PREFIX_BLOCK = 64
MAX_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class _End:
    """A request that ended: its life, and how it ended."""

    life: Lifetime
    outcome: str


class Recorder:
    """Writes a line of JSON for each request that ended or was refused; a listener for the core's events.

    The file and the one before it, `PATH.1`, hold at most `max_bytes` each. A disk that is full or slow costs lines
    of the recording, never time of the engine. Equal ids of `prefix` stand for equal blocks of `PREFIX_BLOCK` tokens
    at the prompt's start, hashed with a key that is drawn anew for each recording and kept nowhere. Raises
    `BadSetting` when the file cannot be opened.
    """

    def __init__(self, path: Path, *, max_bytes: int = MAX_BYTES, retry_s: float = RETRY_S) -> None:
        self._key = secrets.token_bytes(32)
        self._writer: LineWriter[_End | Refusal] = LineWriter(
            RotatingFile(path, max_bytes), self._line, retry_s=retry_s
        )
        self._tracker = LatencyTracker(
            on_scheduled=_pass_over, on_first=_pass_over, on_gap=_pass_over, on_end=self._ended
        )

    @property
    def num_lost(self) -> int:
        """Requests that are not in the file: the disk was full, or too slow."""
        return self._writer.num_lost

    def on_events(self, events: Iterable[Event]) -> None:
        """Follow what happens; called in the engine's thread."""
        for event in events:
            if isinstance(event, StepRecord):
                continue
            if isinstance(event, Rejected):
                self._writer.put(_End(Lifetime(event.request, event.request.arrival_s), f"refused: {event.cause}"))
            self._tracker.on_event(event)

    def on_refusal(self, refusal: Refusal) -> None:
        """Write down a request that was turned away at the door; called in any thread."""
        self._writer.put(refusal)

    def close(self) -> None:
        """Write what is left."""
        self._writer.close()

    def _ended(self, life: Lifetime) -> None:
        self._writer.put(_End(life, str(life.reason or "")))

    def _line(self, end: _End | Refusal) -> bytes:
        """A line, made in the writer's thread."""
        fields = _refused(end) if isinstance(end, Refusal) else self._fields(end)
        return json.dumps(fields, separators=(",", ":")).encode() + b"\n"

    def _fields(self, end: _End) -> dict[str, object]:
        life, request = end.life, end.life.request
        return {
            "at_s": _rounded(max(0.0, life.arrival_s)),
            "num_prompt": request.num_prompt,
            "num_output": max((choice.num_tokens for choice in life.choices.values()), default=0),
            "max_output": request.max_output,
            "prefix": prefix_ids(request, PREFIX_BLOCK, self._key),
            "prefix_block": PREFIX_BLOCK,
            "tenant": request.tenant,
            "priority": request.priority,
            "choices": request.params.n,
            "outcome": end.outcome,
            "num_cached": life.num_cached,
            "queue_s": _rounded(life.queue_s),
            "ttft_s": _rounded(life.ttft_s),
            "e2e_s": _rounded(life.e2e_s),
        }


def _refused(refusal: Refusal) -> dict[str, object]:
    """The fields of a request that never came in: all that is known without hashing its prompt."""
    return {
        "at_s": _rounded(max(0.0, refusal.at_s)),
        "num_prompt": refusal.num_prompt,
        "num_output": 0,
        "max_output": refusal.max_output,
        "prefix": [],
        "prefix_block": PREFIX_BLOCK,
        "tenant": refusal.tenant,
        "priority": refusal.priority,
        "choices": refusal.choices,
        "outcome": f"refused: {refusal.cause}",
        "num_cached": 0,
        "queue_s": None,
        "ttft_s": None,
        "e2e_s": None,
    }


def _pass_over(_: object) -> None:
    """Nothing to do: only ends are written."""


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 6)
