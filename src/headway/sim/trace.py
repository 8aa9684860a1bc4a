"""A run in a viewer of Chrome traces: one row for the steps of each replica, one for each request's life."""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import count
from typing import TextIO

from headway.core import Admitted, Arrived, Event, Finished, Preempted, Rejected, StepRecord, TokenEmitted
from headway.engine.core import Emit


class ChromeTrace:
    """Writes events as they come, so that its size in memory does not grow; `close` completes the file.

    Open it in Perfetto or chrome://tracing. A process is a replica. Its counter shows sequences running and waiting;
    a request's row has the spans `queue`, `prefill` and `decode`, and a mark where it was preempted.
    """

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self._numbers = count(1)
        self._is_empty = True
        file.write('{"displayTimeUnit":"ms","traceEvents":[\n')

    def replica(self, name: str) -> Emit:
        """A listener for one replica's events."""
        number = next(self._numbers)
        self._write({"ph": "M", "name": "process_name", "pid": number, "args": {"name": f"replica {name}"}})
        opened: dict[str, str] = {}

        def listen(events: list[Event]) -> None:
            for event in events:
                self._take(event, number, opened)

        return listen

    def close(self) -> None:
        """Complete the document. The file stays open for its owner to close."""
        self._file.write("\n]}\n")

    def _take(self, event: Event, number: int, opened: dict[str, str]) -> None:
        match event:
            case TokenEmitted(request_id=name, index=0, at_s=at_s):
                self._begin("decode", name, at_s, number, opened)
            case StepRecord():
                self._step(event, number)
            case Arrived(request=request):
                self._begin("queue", request.id, request.arrival_s, number, opened)
            case Admitted(request_id=name, is_first=True, at_s=at_s):
                self._begin("prefill", name, at_s, number, opened)
            case Preempted(request_id=name, at_s=at_s, method=method):
                mark = {"ph": "n", "cat": "request", "name": f"preempted: {method.value}", "id": name}
                self._write({**mark, "pid": number, "tid": 0, "ts": at_s * 1e6})
            case Finished(request=request, at_s=at_s) | Rejected(request=request, at_s=at_s):
                self._end(request.id, at_s, number, opened)
            case _:
                pass

    def _step(self, record: StepRecord, number: int) -> None:
        if not record.grants:
            return
        num_decode = sum(num == 1 for num in record.grants.values())
        args = {
            "step": record.step,
            "prefill_tokens": sum(record.grants.values()) - num_decode,
            "decodes": num_decode,
            "free_blocks": record.free_blocks,
        }
        start, length = record.start_s * 1e6, (record.end_s - record.start_s) * 1e6
        name = "mixed" if 0 < num_decode < len(record.grants) else "decode" if num_decode else "prefill"
        self._write({"ph": "X", "name": name, "pid": number, "tid": 0, "ts": start, "dur": length, "args": args})
        queued = {"running": record.queued.num_running, "waiting": record.queued.num_waiting}
        self._write({"ph": "C", "name": "sequences", "pid": number, "ts": start, "args": queued})

    def _begin(self, span: str, name: str, at_s: float, number: int, opened: dict[str, str]) -> None:
        self._end(name, at_s, number, opened)
        opened[name] = span
        self._write(_edge("b", span, name, at_s, number))

    def _end(self, name: str, at_s: float, number: int, opened: dict[str, str]) -> None:
        if span := opened.pop(name, None):
            self._write(_edge("e", span, name, at_s, number))

    def _write(self, entry: Mapping[str, object]) -> None:
        if not self._is_empty:
            self._file.write(",\n")
        self._is_empty = False
        json.dump(entry, self._file, separators=(",", ":"))


class StepLog:
    """Every step as one line of JSON: who got how many tokens, who gave way, who ended."""

    def __init__(self, file: TextIO) -> None:
        self._file = file

    def replica(self, name: str) -> Emit:
        """A listener for one replica's events."""

        def listen(events: list[Event]) -> None:
            for event in events:
                if isinstance(event, StepRecord) and (event.grants or event.preempted or event.rejected):
                    json.dump(_line(name, event), self._file, separators=(",", ":"))
                    self._file.write("\n")

        return listen


def _line(name: str, record: StepRecord) -> dict[str, object]:
    return {
        "replica": name,
        "step": record.step,
        "start_s": record.start_s,
        "end_s": record.end_s,
        "grants": record.grants,
        "preempted": record.preempted,
        "swapped_out": record.swapped_out,
        "swapped_in": record.swapped_in,
        "finished": record.finished,
        "rejected": record.rejected,
        "free_blocks": record.free_blocks,
        "running": record.queued.num_running,
        "waiting": record.queued.num_waiting,
    }


def _edge(phase: str, span: str, name: str, at_s: float, number: int) -> dict[str, object]:
    return {"ph": phase, "cat": "request", "name": span, "id": name, "pid": number, "tid": 0, "ts": at_s * 1e6}
