"""The engine in this process as a target, with what only it can tell: steps, queue times, recomputed tokens."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import replace
from typing import Self

from headway.bench.ledger import EngineWatch
from headway.bench.target import Broken, Call, Chunk, Closing, Opened, Piece, Refused
from headway.core import FinishReason, SamplingParams
from headway.engine import AdmissionLimits, AsyncLLM, Engine, Guarding, Stream
from headway.errors import ExecutorFault, InvalidRequest, Overloaded
from headway.report import StepSample

_ALL_COME_IN = AdmissionLimits(max_queued_requests=0, step_timeout_s=0)


class EngineTarget:
    """Streams from an engine. Answers are exactly as long as asked for: no text ends them early.

    Use it as an async context manager, on the event loop that runs the requests. The run's clock must be the
    engine's. Leaving it stops the engine's thread; the executor stays open, its owner closes it. `guarding` says what
    is refused at the door; without it, nothing that can be served, however long the step under way lasts: it is what is
    measured, and on a clock that runs faster than real time no sign of a fault.
    """

    def __init__(self, engine: Engine, guarding: Guarding | None = None) -> None:
        self.watch = EngineWatch(engine.limits.num_blocks)
        engine.core.listen(self.watch.on_events)  # before the loop's own listener: a delta never comes before its times
        self._engine = engine
        self._llm = AsyncLLM(engine=engine, guarding=guarding or Guarding(limits=_ALL_COME_IN))

    async def __aenter__(self) -> Self:
        self._llm.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def check(self) -> None:
        """Nothing can be wrong with it but a dead thread. Raises `Broken`."""
        if not self._llm.is_alive:
            raise Broken("the engine is not running")

    async def stream(self, call: Call, /) -> AsyncGenerator[Piece, None]:
        """Submit a request and yield its tokens with the moments at which the engine emitted them."""
        life = self.watch.open(call.id)
        reason = FinishReason.LENGTH
        try:
            stream = self._submit(call)
            yield Opened(self._engine.clock.now())
            async for delta in stream:
                for at_s in life.take_times(len(delta.token_ids)):
                    yield Chunk(at_s, num_tokens=1)
                reason = delta.finish_reason or reason
        except Overloaded as error:
            raise Refused(str(error), retry_after_s=error.retry_after_s) from None
        except ExecutorFault as error:
            raise Broken(str(error)) from None
        finally:
            self.watch.close(call.id)
        if reason is FinishReason.ERROR:
            raise Broken("the executor failed in a step of this request; the log says why")
        usage = stream.usage
        assert usage is not None, "a stream that ended has its usage"
        yield Closing(
            at_s=self._engine.clock.now(),
            finish_reason=str(reason),
            num_prompt=usage.num_prompt,
            num_output=usage.num_output,
            num_cached=usage.num_cached,
            scheduled_s=life.scheduled_s,
            num_preemptions=life.num_preemptions,
        )

    def _submit(self, call: Call) -> Stream:
        prompt = self._llm.encode(call.prompt) if isinstance(call.prompt, str) else call.prompt
        params = SamplingParams(
            temperature=0.0, max_tokens=call.num_output, min_tokens=call.num_output, ignore_eos=True
        )
        try:
            return self._llm.submit(
                prompt, params, request_id=call.id, priority=call.priority, tenant=call.tenant, weight=call.weight
            )
        except Overloaded as error:
            raise Refused(str(error), retry_after_s=error.retry_after_s) from None
        except InvalidRequest as error:
            raise Broken(str(error)) from None

    def describe(self) -> dict[str, object]:
        """Model, executor, policy and the limits that matter to it."""
        engine = self._engine
        config, limits = engine.config, engine.limits
        return {
            "kind": "engine",
            "model": engine.name,
            "weights": engine.compute.weights,
            "executor": config.executor,
            "threads": engine.compute.threads,
            "policy": config.policy,
            "policy_settings": dict(config.policy_settings),
            "num_blocks": limits.num_blocks,
            "block_size": limits.block_size,
            "max_num_seqs": config.max_num_seqs,
            "max_num_batched_tokens": config.max_num_batched_tokens,
            "prefix_cache": config.prefix_cache,
        }

    async def counters(self) -> dict[str, float]:
        """The ledger's totals."""
        return self.watch.totals()

    def steps(self, start_s: float, /) -> list[StepSample]:
        """Every step that computed something."""
        return [replace(step, start_s=step.start_s - start_s) for step in self.watch.steps if step.start_s >= start_s]

    async def close(self) -> None:
        """Stop the engine's thread."""
        await self._llm.stop()
