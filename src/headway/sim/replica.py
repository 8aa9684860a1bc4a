"""One engine in virtual time: the real core, a clock of its own, and an inbox."""

from __future__ import annotations

from collections import deque

from headway.clock import VirtualClock
from headway.core import Batch, FinishReason, Request
from headway.engine.core import Emit, EngineCore
from headway.errors import BadSetting
from headway.executor.simulated import SimulatedExecutor
from headway.kv import KVCache, make_prefix_cache
from headway.sched import Policy, Scheduler, make_policy, never_released
from headway.sim.lookahead import LookAhead, Pipelined
from headway.sim.plant import Plan, Plant
from headway.sim.stopping import stop

_IDLE_S = 1e-3
_MAX_IDLE_STEPS = 100_000
"""A policy that lets this much virtual time pass with nothing to wait for will never do anything again."""


class Replica:
    """An engine that is told of requests, and steps when it is asked to. `name` tells it from others in traces."""

    def __init__(self, name: str, plant: Plant, plan: Plan, listener: Emit) -> None:
        self.name = name
        self.plant = plant
        self._clock = VirtualClock()
        self._lengths: dict[str, int] = {}
        self._inbox: deque[Request] = deque()
        self._began_s = -1.0
        self._between_s = 0.0
        self._is_busy = False
        self._num_idle = 0
        limits = {"num_slots": plant.num_blocks * plant.block_size, **plan.defaults}
        policy = make_policy(plan.policy, plan.settings, limits)
        kv = KVCache(
            plant.num_blocks,
            plant.block_size,
            make_prefix_cache(plant.prefix_cache, plant.block_size),
            num_host_blocks=plant.num_host_blocks,
        )
        executor = SimulatedExecutor(
            num_blocks=plant.num_blocks,
            block_size=plant.block_size,
            clock=self._clock,
            step_time=self._step_time,
            output_lengths=self._lengths,
            in_flight=max(plant.num_stages, policy.in_flight()),
            num_stages=plant.num_stages,
        )
        self.core = EngineCore(
            Scheduler(_adapted(policy, plant), kv, stop, name=plan.policy), executor, self._clock, listener
        )
        self._policy_name, self._limits = plan.policy, policy.limits()

    @property
    def now_s(self) -> float:
        """How far its time has come."""
        return self._clock.now()

    @property
    def has_work(self) -> bool:
        """Whether stepping it does anything."""
        return bool(self._inbox) or self.core.has_work

    @property
    def num_requests(self) -> int:
        """Requests that it was given and has not finished."""
        return len(self._lengths)

    def refusal(self, request: Request) -> str:
        """Why the request can never be served here, empty if it can: what a server says at its door."""
        plant = self.plant
        room = plant.num_blocks * plant.block_size
        limits = (plant.context, room, self._limits.max_total)
        most = min(limit for limit in limits if limit is not None)
        if request.max_total <= most:
            return ""
        return f"prompt and output take {request.max_total} tokens; at most {most} fit"

    def num_hit(self, request: Request) -> int:
        """Prompt tokens that its prefix cache would save now. A question: nothing becomes recent by it."""
        return self.core.scheduler.kv.prefix.num_known(request.prompt_ids[:-1], request.cache_salt)

    def submit(self, request: Request, num_output: int) -> None:
        """Put a request into the inbox; its time of arrival is no earlier than that of the ones before."""
        self._lengths[request.id] = num_output
        self._inbox.append(request)
        if not self.core.has_work:
            self._clock.advance_to(request.arrival_s)

    def abort(self, request_id: str) -> None:
        """The client left."""
        self._inbox = deque(request for request in self._inbox if request.id != request_id)
        self.core.abort(request_id, FinishReason.ABORT)
        self.forget(request_id)
        self.core.flush_events()

    def forget(self, request_id: str) -> None:
        """A request has ended."""
        self._lengths.pop(request_id, None)

    def step(self) -> None:
        """One step of the engine; its clock moves. `BadSetting` or `PolicyFault` when nothing ever goes on."""
        now_s = self._clock.now()
        if self._inbox:
            # What a look-ahead engine plans now it planned, in truth, when the step before began.
            self._take_in(self._began_s if self.plant.looks_ahead and self._is_busy else now_s)
            if not self.core.has_work:
                self._take_in(now_s)
        self._began_s = now_s
        self._is_busy = self.core.step()
        if self._between_s:
            self._clock.advance(self._between_s)
            self._between_s = 0.0
        if self._is_busy:
            self._num_idle = 0
        else:
            self._wait()

    def _take_in(self, until_s: float) -> None:
        inbox = self._inbox
        while inbox and inbox[0].arrival_s <= until_s:
            self.core.submit(inbox.popleft())

    def _wait(self) -> None:
        """Nothing was computed: let go of what was only held for the look-ahead, or let a little time pass."""
        queues = self.core.scheduler.queues
        if self.plant.looks_ahead and queues.ended:
            for seq in list(queues.ended):
                self.core.abort(seq.request.id)
            self.core.flush_events()
            return
        self._num_idle += 1
        self._clock.advance(_IDLE_S)
        if self._num_idle > _MAX_IDLE_STEPS:
            if queues.ended:
                raise never_released(queues.ended, self._policy_name)
            stuck = ", ".join(list(queues.families)[:5])
            raise BadSetting(f"the policy makes no progress: {stuck} wait for ever; check its limits and the KV memory")

    def _step_time(self, batch: Batch) -> float:
        step_s, self._between_s = self.plant.step_times(batch, self._clock.now())
        return step_s


def _adapted(policy: Policy, plant: Plant) -> Policy:
    if plant.num_stages > 1 and policy.overlaps:
        return Pipelined(policy, plant.num_stages)
    return LookAhead(policy) if plant.looks_ahead else policy
