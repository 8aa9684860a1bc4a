"""Tapes: what a policy does with a scene, step by step. The same core as live, in units of virtual time."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict

from headway.clock import VirtualClock
from headway.core import Event, Request, SamplingParams, StepRecord
from headway.engine.core import EngineCore
from headway.errors import BadSetting, HeadwayError
from headway.executor.simulated import SimulatedExecutor
from headway.kv import KVCache, make_prefix_cache
from headway.sched import Policy, Scheduler, all_params, make_policy, never_released, units_of
from headway.sim.door import Door
from headway.sim.scene import Scene, SceneRequest
from headway.sim.stopping import stop

EOS = 0
MAX_STEPS = 100_000
MAX_IDLE_STEPS = 1_000
"""A policy that does nothing for so long, with nothing running, will never do anything again."""


def run_scene(scene: Scene, policy: str, settings: Mapping[str, str] | None = None) -> list[StepRecord]:
    """Run a scene to its end under a policy; one record per listed step.

    `settings` are `--set` texts: the policy's parameters, and `prefix_cache` (none, hashed, radix). Raises
    `BadSetting` for unknown names, and when the policy stops making progress; `PolicyFault` where the fault is its own.
    """
    chosen = dict(settings or {})
    prefix_cache = chosen.pop("prefix_cache", _usual_prefix_cache(scene, policy))
    planner = make_policy(policy, chosen, _limits(scene))
    return _Tape(scene, planner, policy, prefix_cache).run()


def tape_params(scene: Scene, policy: str, settings: Mapping[str, str] | None = None) -> dict[str, object]:
    """Everything that `run_scene` would set: the policy's parameters, given or not, and the prefix cache."""
    chosen = dict(settings or {})
    prefix_cache = chosen.pop("prefix_cache", _usual_prefix_cache(scene, policy))
    return {**all_params(policy, chosen, _limits(scene)), "prefix_cache": prefix_cache}


class _Tape:
    """One run of a scene."""

    def __init__(self, scene: Scene, policy: Policy, name: str, prefix_cache: str) -> None:
        clock = VirtualClock()
        kv = KVCache(
            scene.num_blocks,
            scene.block_size,
            make_prefix_cache(prefix_cache, scene.block_size),
            num_host_blocks=scene.host_blocks,
        )
        lengths = {request.id: request.output for request in scene.requests}
        executor = SimulatedExecutor(
            num_blocks=scene.num_blocks,
            block_size=scene.block_size,
            clock=clock,
            step_time=lambda batch: units_of(policy, batch, name),
            output_lengths=lengths,
            in_flight=policy.in_flight(),
        )
        self._clock, self._name = clock, name
        self._records: list[StepRecord] = []
        guarded = policy if policy.refuses else Door(policy, lengths)
        self._core = EngineCore(Scheduler(guarded, kv, stop, name=name), executor, clock, self._listen)
        self._coming = sorted(_requests(scene), key=lambda request: request.arrival_s)

    def run(self) -> list[StepRecord]:
        num_idle = 0
        while self._coming or self._core.has_work:
            self._arrive()
            if not self._core.has_work:
                self._skip_to_next_arrival()
                continue
            start_s = self._clock.now()
            num_idle = 0 if self._core.step() else num_idle + 1
            self._core.check()
            self._clock.advance_to(start_s + 1.0)
            if num_idle > MAX_IDLE_STEPS or len(self._records) > MAX_STEPS:
                raise self._why_endless(num_idle)
        while self._records and _is_idle(self._records[-1]):
            self._records.pop()
        return self._records

    def _why_endless(self, num_idle: int) -> HeadwayError:
        queues = self._core.scheduler.queues
        if queues.ended and (num_idle or not queues.running):
            return never_released(queues.ended, self._name)
        step, left = self._records[-1].step, ", ".join(list(queues.families)[:5])
        if num_idle > MAX_IDLE_STEPS:
            return BadSetting(
                f"no progress at step {step}: {left} cannot run in this scene; raise num_blocks or the policy's limits"
            )
        return BadSetting(
            f"{left} had not ended after {MAX_STEPS} steps, the most that a tape shows: ask for fewer tokens, or raise "
            "num_blocks where they take each other's memory again and again"
        )

    def _arrive(self) -> None:
        while self._coming and self._coming[0].arrival_s <= self._clock.now():
            self._core.submit(self._coming.pop(0))

    def _skip_to_next_arrival(self) -> None:
        num_units = math.ceil(self._coming[0].arrival_s - self._clock.now())  # in one go: it may be far away
        self._clock.advance(float(num_units))
        self._core.scheduler.skip(num_units)

    def _listen(self, events: list[Event]) -> None:
        self._records += [event for event in events if isinstance(event, StepRecord)]


def picture(scene: Scene, records: list[StepRecord]) -> str:
    """A tape as text: rows are requests, columns steps, cells the tokens granted.

    `.` waits or is not there, `x` was preempted, `<` swapped out, `>` swapped in and computed, `#` a finished
    row that is computed all the same, `!` rejected. A last row shows the free blocks.
    """
    names = _row_names(scene, records)
    columns = [[str(record.step) for record in records]]
    columns += [[_cell(record, name) for record in records] for name in names]
    columns.append([str(record.free_blocks) for record in records])
    labels = ["step", *names, "free"]
    left = max(map(len, labels))
    widths = [max(len(row[at]) for row in columns) for at in range(len(records))]
    lines = [
        f"{label:<{left}}  " + "  ".join(f"{cell:>{width}}" for cell, width in zip(row, widths, strict=True))
        for label, row in zip(labels, columns, strict=True)
    ]
    lines += [f"step {record.step}: {note}" for record in records for note in record.notes]
    return "\n".join(line.rstrip() for line in lines)


def as_json(policy: str, params: Mapping[str, object], records: list[StepRecord]) -> dict[str, object]:
    """The tape as one JSON document, in the shape that DESIGN §5 fixes."""
    return {"policy": policy, "params": dict(params), "steps": [_json_step(record) for record in records]}


def _json_step(record: StepRecord) -> dict[str, object]:
    fields = asdict(record)
    names = ("step", "grants", "preempted", "swapped_out", "swapped_in", "finished", "rejected", "free_blocks")
    step: dict[str, object] = {name: fields[name] for name in names}
    step["waste"] = {"rows": dict(record.wasted_rows), "padding": dict(record.padding)}
    step["notes"] = record.notes
    return step


def _cell(record: StepRecord, name: str) -> str:
    if name in record.rejected:
        return "!"
    if name in record.wasted_rows:
        return "#"
    mark = "x" if name in record.preempted else "<" if name in record.swapped_out else ""
    mark += ">" if name in record.swapped_in else ""
    tokens = str(record.grants[name]) if name in record.grants else ""
    padding = f"+{record.padding[name]}" if name in record.padding else ""
    return mark + tokens + padding or "."


def _row_names(scene: Scene, records: list[StepRecord]) -> list[str]:
    seen = {name for record in records for name in (*record.grants, *record.wasted_rows)}
    names = []
    for request in scene.requests:
        names += [request.id, *(f"{request.id}/{choice}" for choice in range(1, request.n))]
    return [name for name in names if name in seen or "/" not in name]


def _requests(scene: Scene) -> list[Request]:
    """The scene's requests with distinct prompts, but for the tokens that a group shares."""
    groups = sorted({request.prefix_group for request in scene.requests if request.prefix_group})
    first_ids = {group: (position + 1) * 10_000_000 for position, group in enumerate(groups)}
    return [_request(request, first_ids, position) for position, request in enumerate(scene.requests)]


def _request(request: SceneRequest, first_ids: Mapping[str, int], position: int) -> Request:
    own = (len(first_ids) + position + 1) * 10_000_000
    shared = (
        [first_ids[request.prefix_group] + at for at in range(request.prefix_tokens)] if request.prefix_group else []
    )
    return Request(
        id=request.id,
        prompt_ids=(*shared, *(own + at for at in range(request.prompt - len(shared)))),
        max_output=request.max_output,
        arrival_s=request.arrival,
        params=SamplingParams(n=request.n, temperature=0.0, max_tokens=request.max_output),
        eos_ids=frozenset({EOS}),
        priority=request.priority,
        tenant=request.tenant,
        weight=request.weight,
        deadline_s=request.deadline,
        ttft_s=request.ttft,
        predicted=request.predicted,
    )


def _limits(scene: Scene) -> dict[str, object]:
    """Defaults of parameters that mean something else in units than in seconds, or that only the scene knows."""
    slots = {"num_slots": scene.num_blocks * scene.block_size}
    mlfq = {"first_quantum": 1.0, "num_levels": 4, "promote_after": 0.0, "init_unit": 1}
    return {**slots, **mlfq, "tbt_target": 0.0, "predictor": "fitted"}


def _usual_prefix_cache(scene: Scene, policy: str) -> str:
    if policy == "sglang":
        return "radix"
    return "hashed" if scene.has_prefixes else "none"


def _is_idle(record: StepRecord) -> bool:
    return not (record.grants or record.finished or record.rejected or record.preempted or record.wasted_rows)
