"""Control at run time: knobs, draining, aborts, explanations. What an operator holds in hand."""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from headway.core import FinishReason, Request
from headway.engine.admission import NO_LIMITS, Admission, AdmissionLimits
from headway.engine.build import Engine
from headway.engine.core import EngineCore
from headway.engine.guardrails import Guardrails, GuardSettings
from headway.engine.knobs import Change, changed, shown
from headway.engine.loop import Abort, Call, Command
from headway.engine.outputs import EngineStats
from headway.engine.tally import Tally
from headway.obs import Decisions

log = logging.getLogger("headway.control")

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True, kw_only=True)
class Guarding:
    """What is refused at the door: limits of the queue, and promises to watch. By default nothing."""

    limits: AdmissionLimits = NO_LIMITS
    guards: GuardSettings = field(default_factory=GuardSettings)


class Control:
    """One engine's controls. Methods belong to the event loop's thread; what touches the core runs between two steps.

    `send` gives the engine's thread a command.
    """

    def __init__(self, engine: Engine, send: Callable[[Command], None], guarding: Guarding) -> None:
        self._engine, self._send = engine, send
        guardrails = Guardrails(guarding.guards, engine.limits.num_blocks)
        self.admission = Admission(guarding.limits, engine.limits.num_kv_tokens, guardrails)
        self.decisions = Decisions()
        self._tally = Tally()
        self.is_leaving = self._is_drained = False
        self._turning = asyncio.Lock()
        engine.core.scheduler.hold_back = guardrails.hold_back
        self._take_on(guarding.limits)
        for listener in (
            self.admission.backlog.on_events,
            self.admission.expiry.on_events,
            self.admission.guardrails.on_events,
            self.decisions.on_events,
            self._tally.on_events,
        ):
            engine.core.listen(listener)

    def admit(self, request: Request) -> None:
        """Let a request in; to be submitted at once. Raises `Overloaded`."""
        predicted_s = self.admission.admit(request, self._engine.clock.now())
        self.decisions.predict(request.id, predicted_s)

    def stats(self) -> EngineStats:
        """A snapshot of queues, pool and totals."""
        admission = self.admission
        return replace(
            self._tally.stats(self._engine.core, admission.refused),
            num_queued_tokens=admission.backlog.queued().num_tokens,
            guardrail_level=admission.guardrails.level,
        )

    @property
    def now_s(self) -> float:
        """The engine's time."""
        return self._engine.clock.now()

    @property
    def is_draining(self) -> bool:
        """Whether nobody new is taken: for now, or for good because the server is leaving."""
        return self.is_leaving or self._is_drained

    def settings(self) -> dict[str, Any]:
        """Every knob with its value."""
        return shown(self._engine.config, self.admission.limits, self.admission.guardrails.settings)

    async def change(self, patch: Mapping[str, Any], who: str) -> dict[str, Any]:
        """Turn several knobs at once, between two steps; all of them or none. The settings afterwards.

        Raises `BadSetting` and changes nothing where one value, or all together, cannot be, `ExecutorFault` where a
        policy cannot be changed because the engine has stopped. Whoever is cancelled does not learn that it was done.
        """
        return await asyncio.shield(self._change(patch, who))

    async def _change(self, patch: Mapping[str, Any], who: str) -> dict[str, Any]:
        async with self._turning:
            change = changed(patch, self._engine, self.admission.limits, self.admission.guardrails.settings)
            if change.policy is not None:
                await self._replace(change)
            self._engine.config, self._engine.limits = change.config, change.engine_limits
            self.admission.guardrails.change(change.guards)
            self._take_on(change.limits)
        log.warning("settings changed by %s: %s", who, ", ".join(f"{key}={value}" for key, value in patch.items()))
        return self.settings()

    async def _replace(self, change: Change) -> None:
        """Schedule on as the change says. Whoever passes the door meanwhile comes after it, and must suit it too."""
        door, before = self._engine.door, self._engine.door.limits
        door.limits = before.narrowed(change.engine_limits.max_num_seqs)
        try:
            await self._between_steps(change.carry_out)
        except BaseException:
            door.limits = before
            raise
        door.limits = change.engine_limits

    def drain(self, who: str, tenant: str | None = None) -> None:
        """Take no new requests, of one tenant or of anybody; those inside go on."""
        log.warning("%s drains %s", who, "the server" if tenant is None else f"tenant {tenant!r}")
        if tenant is None:
            self._is_drained = True
        else:
            self.admission.drained.add(tenant)

    def resume(self, who: str, tenant: str | None = None) -> None:
        """Take new requests again."""
        log.warning("%s resumes %s", who, "the server" if tenant is None else f"tenant {tenant!r}")
        if tenant is None:
            self._is_drained = False
        else:
            self.admission.drained.discard(tenant)

    def abort(self, name: str, who: str) -> list[str]:
        """End every living request called `name`, in whatever state; their ids."""
        ids = [request_id for request_id, _ in self.decisions.ids_of(name)]
        for request_id in ids:
            log.warning("%s aborts request %s", who, request_id)
            self._send(Abort(request_id, FinishReason.ABORT))
        return ids

    async def reset_cache(self, who: str) -> int:
        """Empty the prefix cache of what no running request uses; the number of blocks that held it.

        Raises `ExecutorFault` where the engine has stopped.
        """
        log.warning("%s resets the prefix cache", who)

        def reset(core: EngineCore) -> int:
            stats = core.scheduler.kv.stats
            before = stats.num_evicted
            core.scheduler.kv.forget_idle()
            return stats.num_evicted - before

        return await self._between_steps(reset)

    def _take_on(self, limits: AdmissionLimits) -> None:
        policy = self._engine.core.scheduler.policy
        self.admission.limits = limits
        self.admission.backlog.has_tiers, self.admission.backlog.is_fair = policy.honours_tier, policy.honours_weight
        self.admission.expiry.queue_timeout_s = limits.queue_timeout_ms / 1000.0

    async def _between_steps(self, action: Callable[[EngineCore], Result]) -> Result:
        """Run something in the engine's thread and wait for it. Raises `ExecutorFault` where that has ended."""
        done: concurrent.futures.Future[Result] = concurrent.futures.Future()

        def call(core: EngineCore) -> None:
            if not done.set_running_or_notify_cancel():
                return  # nobody waits for it any more
            try:
                done.set_result(action(core))
            except Exception as error:  # noqa: BLE001 - raised where it is awaited; the engine goes on
                done.set_exception(error)

        def forsaken(error: Exception) -> None:
            if done.set_running_or_notify_cancel():
                done.set_exception(error)

        self._send(Call(call, forsaken))
        return await asyncio.wrap_future(done)
