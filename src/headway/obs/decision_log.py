"""What the scheduler was told and what it decided, step by step: enough to decide it all again, and no text.

`headway replay` reads the file (`headway.sim.replay`). One JSON object a line, numbered by `n`; its `kind` is engine,
arrived, ended, refused or step.
"""

from __future__ import annotations

import json
import secrets
from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import count

from headway.core import (
    Arrived,
    Event,
    Finished,
    Rejected,
    Request,
    SequenceFinished,
    StepRecord,
    TokenEmitted,
)
from headway.obs.prefix_ids import prefix_ids
from headway.obs.rotating import RETRY_S, LineWriter, RotatingFile

VERSION = 1
_REQUEST_FIELDS = ("max_output", "arrival_s", "priority", "tenant", "weight", "kv_guaranteed", "kv_most")
_WISHES = ("deadline_s", "ttft_s", "predicted")
STEP_FIELDS = ("grants", "preempted", "swapped_out", "swapped_in", "finished", "rejected")

_Entry = tuple[int, str, object]


class DecisionLog:
    """Writes the core's events to a file; a listener. `engine` says how to build the same scheduler.

    Ends at `max_bytes`, since what comes later cannot be replayed without what came before. A disk that is full or
    slow costs lines, never time of the engine. `file` is closed with the log.
    """

    def __init__(
        self,
        file: RotatingFile,
        engine: Mapping[str, object],
        *,
        block_size: int,
        max_bytes: int,
        retry_s: float = RETRY_S,
    ) -> None:
        self._key = secrets.token_bytes(32)
        self._block_size = block_size
        self._numbers = count()
        self._room = max_bytes
        self._num_output: Counter[str] = Counter()
        self._writer: LineWriter[_Entry] = LineWriter(file, self._line, retry_s=retry_s)
        self._put("engine", {"version": VERSION, **engine})

    def on_events(self, events: Iterable[Event]) -> None:
        """Follow what happens; called in the engine's thread."""
        for event in events:
            match event:
                case TokenEmitted(seq_id=name):
                    self._num_output[name] += 1
                case Arrived() | StepRecord():
                    self._put("", event)
                case SequenceFinished(seq_id=name, reason=reason):
                    fields = {"id": name, "num_output": self._num_output.pop(name, 0), "reason": str(reason)}
                    self._put("ended", fields)
                case Finished(request=request, reason=reason, num_output=0):
                    self._put("ended", {"id": request.id, "num_output": 0, "reason": str(reason)})
                case Rejected(request=request, cause=cause):
                    self._put("refused", {"id": request.id, "cause": str(cause)})
                case _:
                    pass

    def close(self) -> None:
        """Write what is left."""
        self._writer.close()

    def _put(self, kind: str, content: object) -> None:
        self._writer.put((next(self._numbers), kind, content))

    def _line(self, entry: _Entry) -> bytes:
        """A line, made in the writer's thread; none once the room is used up."""
        number, kind, content = entry
        if isinstance(content, Arrived):
            fields: Mapping[str, object] = {"kind": "arrived", "at_s": content.at_s, **self._arrival(content.request)}
        elif isinstance(content, StepRecord):
            fields = {"kind": "step", **step_fields(content)}
        else:
            assert isinstance(content, Mapping), "all other entries are fields already"
            fields = {"kind": kind, **content}
        line = json.dumps({"n": number, **fields}, separators=(",", ":")).encode() + b"\n"
        if len(line) > self._room:
            self._room = 0
            return b""
        self._room -= len(line)
        return line

    def _arrival(self, request: Request) -> dict[str, object]:
        fields = {name: getattr(request, name) for name in (*_REQUEST_FIELDS, *_WISHES)}
        ids = prefix_ids(request, self._block_size, self._key)
        more = {"num_prompt": request.num_prompt, "choices": request.params.n, "tier": int(request.tier)}
        return {"id": request.id, **fields, **more, "prefix": ids}


def step_fields(record: StepRecord) -> dict[str, object]:
    """A step's times and decisions."""
    times = {"step": record.step, "start_s": record.start_s, "end_s": record.end_s}
    return {**times, **{name: getattr(record, name) for name in STEP_FIELDS}}
