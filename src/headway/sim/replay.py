"""A recorded engine decided again, in virtual time, and held to every step that it took.

The log is `headway.obs.DecisionLog`'s. The same policy is built, told of the same requests between the same steps, and
each step lasts as long as it did. Tokens are made up, so that a prompt which repeats an earlier answer finds nothing
of it in the cache; changes of policy or limits while the server ran are not in the log.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headway.clock import VirtualClock
from headway.core import Batch, Cause, Event, FinishReason, Request, SamplingParams, StepRecord, Tier, unreadable
from headway.engine.core import EngineCore
from headway.errors import BadSetting
from headway.executor.simulated import SimulatedExecutor
from headway.kv import KVCache, make_prefix_cache
from headway.obs.decision_log import STEP_FIELDS, VERSION
from headway.sched import Scheduler, make_policy
from headway.sim.decision_shape import check_entry
from headway.sim.stopping import stop

EOS = 0
_FIRST_SHARED = 1 << 48
_FROM_OUTSIDE = (FinishReason.ABORT, FinishReason.DEADLINE, FinishReason.ERROR)


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """A decision that was not made again: `field` of step number `step` of the log."""

    step: int
    field: str
    recorded: object
    replayed: object


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """How many steps were compared, and the differences. `note` says why the log was not followed to its end."""

    num_steps: int
    num_requests: int
    differences: Sequence[Difference]
    note: str = ""


def replay(path: Path) -> Replay:
    """Decide a log again. Raises `BadSetting` for a file that is none, naming the line."""
    entries, note = _read(path)
    return _Run(entries).go(note)


class _Run:
    """One replay."""

    def __init__(self, entries: Sequence[Mapping[str, Any]]) -> None:
        head, self._entries = entries[0], entries[1:]
        self._clock = VirtualClock()
        self._elapsed_s = 0.0
        self._records: list[StepRecord] = []
        self._next_own = 1 << 24
        self._block_size = head["block_size"]
        policy = make_policy(head["policy"], head["settings"], head["limits"])
        size = {"num_blocks": head["num_blocks"], "block_size": self._block_size}
        cache = make_prefix_cache(head["prefix_cache"], self._block_size)
        lengths = {
            entry["id"]: entry["num_output"]
            for entry in self._entries
            if entry["kind"] == "ended" and entry["reason"] not in _FROM_OUTSIDE
        }
        executor = SimulatedExecutor(
            **size,
            clock=self._clock,
            step_time=self._step_time,
            output_lengths=lengths,
            num_host_blocks=head["num_host_blocks"],
            in_flight=policy.in_flight(),
        )
        kv = KVCache(**size, prefix=cache, num_host_blocks=head["num_host_blocks"])
        self._core = EngineCore(Scheduler(policy, kv, stop, name=head["policy"]), executor, self._clock, self._listen)

    def go(self, note: str) -> Replay:
        """All entries in their order."""
        differences: list[Difference] = []
        num_steps = num_requests = 0
        for entry in self._entries:
            if entry["kind"] == "step":
                differences += self._step(entry, num_steps)
                num_steps += 1
            elif entry["kind"] == "arrived":
                self._clock.advance_to(max(self._clock.now(), entry["at_s"]))
                self._core.submit(self._request(entry))
                num_requests += 1
            elif entry["kind"] == "ended" and entry["reason"] in _FROM_OUTSIDE:
                self._core.abort(entry["id"].split("/")[0], FinishReason(entry["reason"]))
            elif entry["kind"] == "refused" and entry["cause"] != Cause.POLICY:
                self._core.refuse(entry["id"], "as recorded", Cause(entry["cause"]))
        return Replay(num_steps=num_steps, num_requests=num_requests, differences=differences, note=note)

    def _step(self, entry: Mapping[str, Any], number: int) -> Iterator[Difference]:
        self._clock.advance_to(max(self._clock.now(), entry["start_s"]))
        self._elapsed_s = max(0.0, entry["end_s"] - entry["start_s"])
        self._records.clear()
        self._core.step()
        made = self._records[-1] if self._records else StepRecord(number, self._clock.now())
        for name in STEP_FIELDS:
            mine = getattr(made, name)
            if mine != entry[name]:
                yield Difference(step=number, field=name, recorded=entry[name], replayed=mine)

    def _request(self, entry: Mapping[str, Any]) -> Request:
        prompt: list[int] = []
        for block in entry["prefix"]:
            first = _FIRST_SHARED + block * self._block_size
            prompt += range(first, first + self._block_size)
        num_own = entry["num_prompt"] - len(prompt)
        prompt += range(self._next_own, self._next_own + num_own)
        self._next_own += num_own
        names = ("id", "max_output", "arrival_s", "priority", "tenant", "weight", "kv_guaranteed", "kv_most")
        wishes = ("deadline_s", "ttft_s", "predicted")
        return Request(
            prompt_ids=tuple(prompt),
            params=SamplingParams(n=entry["choices"], temperature=0.0, max_tokens=entry["max_output"]),
            eos_ids=frozenset({EOS}),
            tier=Tier(entry["tier"]),
            **{name: entry[name] for name in (*names, *wishes)},
        )

    def _step_time(self, _batch: Batch) -> float:
        return self._elapsed_s

    def _listen(self, events: list[Event]) -> None:
        self._records += [event for event in events if isinstance(event, StepRecord)]


def _read(path: Path) -> tuple[list[Mapping[str, Any]], str]:
    """The entries up to the first one that is missing, and a note where one is."""
    entries: list[Mapping[str, Any]] = []
    try:
        with path.open(encoding="utf-8") as file:
            for number, line in enumerate(file):
                entry = _entry(line, f"{path}, line {number + 1}")
                if entry["n"] != number:
                    return _headed(entries, path), f"lines are missing after line {number}: the disk was full or slow"
                entries.append(entry)
    except (OSError, UnicodeDecodeError) as error:
        raise unreadable(path, error) from error
    return _headed(entries, path), ""


def _entry(line: str, where: str) -> Mapping[str, Any]:
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise BadSetting(f"{where}: not JSON: {error}") from None
    if not isinstance(entry, dict) or "n" not in entry or "kind" not in entry:
        raise BadSetting(f"{where}: not a line of a decision log")
    if entry["kind"] == "engine" and entry.get("version") != VERSION:
        raise BadSetting(f"{where}: the log has version {entry.get('version')!r}; this program reads version {VERSION}")
    check_entry(entry, where)
    return entry


def _headed(entries: list[Mapping[str, Any]], path: Path) -> list[Mapping[str, Any]]:
    if not entries or entries[0]["kind"] != "engine":
        raise BadSetting(f"{path} is not a decision log: its first line does not describe an engine")
    return entries
