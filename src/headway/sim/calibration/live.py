"""The engine as its callers have it: a loop in a thread, streams on an event loop, never without work."""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from headway.core import Admitted, Event, SamplingParams, SequenceFinished, StepRecord, TokenEmitted
from headway.engine import AsyncLLM, Engine
from headway.sim.calibration.fit import Observation
from headway.sim.calibration.probing import Progress
from headway.sim.load import Load

CONCURRENCY = (2, 6, 16, 40)
_LONGEST_GAP_S = 0.05
"""Between two steps: whoever waited longer had nothing to do."""


@dataclass(slots=True)
class StepListener:
    """The load and the times of every step that follows another one at once, from an engine's events."""

    found: list[Observation] = field(default_factory=list)
    _reached: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    _drawn: int = 0
    _token_s: float = 0.0
    _last_s: float | None = None
    _last_end_s: float = 0.0

    def on_events(self, events: Sequence[Event]) -> None:
        """Take what happened in a step. Tokens of a step come before its record."""
        for event in events:
            match event:
                case TokenEmitted(at_s=at_s):
                    self._drawn += 1
                    self._token_s = at_s
                case Admitted(seq_id=name, num_cached=num_cached):
                    self._reached[name] = num_cached
                case StepRecord():
                    self._step(event)
                case SequenceFinished(seq_id=name):
                    self._reached.pop(name, None)
                case _:
                    pass

    def _step(self, record: StepRecord) -> None:
        load = Load(num_tokens=sum(record.grants.values()), num_drawn=self._drawn)
        for name, num in record.grants.items():
            start = self._reached[name]
            self._reached[name] = start + num
            if num == 1:
                load.num_decodes += 1
                load.decode_context += start + 1
            else:
                load.prefills.append((num, start))
        end_s = self._token_s if self._drawn else record.end_s
        follows = self._last_s is not None and record.start_s - self._last_end_s < _LONGEST_GAP_S
        if record.grants and follows and self._last_s is not None and not record.preempted:
            seconds = max(record.executor_s, 1e-9)
            host_s = max(end_s - self._last_s - seconds, 0.0)
            between_s = min(max(record.start_s - self._last_end_s, 0.0), host_s)
            self.found.append(Observation(load, seconds, host_s, record.start_s, between_s))
        self._last_s = end_s if record.grants else None
        self._last_end_s = record.end_s
        self._drawn = 0


async def observe_live(engine: Engine, *, seconds: float, on_progress: Progress) -> list[Observation]:
    """Serve made-up requests for so long, at several degrees of concurrency, and return what each step took.

    The engine must be idle; its thread is stopped at the end, its executor stays open.
    """
    listener = StepListener()
    engine.core.listen(listener.on_events)
    llm = AsyncLLM(engine=engine)
    llm.start()
    clock = engine.clock
    begin_s = clock.now()
    try:
        for number, num_clients in enumerate(CONCURRENCY, start=1):
            until_s = begin_s + seconds * number / len(CONCURRENCY)
            clients = [_client(llm, random.Random(f"{number}/{k}"), until_s) for k in range(num_clients)]
            watch = asyncio.create_task(_report(llm, begin_s, seconds, on_progress))
            await asyncio.gather(*clients)
            watch.cancel()
    finally:
        await llm.stop()
    return listener.found


async def _client(llm: AsyncLLM, rng: random.Random, until_s: float) -> None:
    """Ask, read to the end, ask again. Whatever is under way at the end is given up."""
    vocabulary = llm.engine.model.vocab_size
    most = llm.max_model_len
    while llm.engine.clock.now() < until_s:
        num_prompt = min(int(16 * 32 ** rng.random()), most // 2)
        num_output = min(rng.randint(8, 64), most - num_prompt)
        prompt = [rng.randrange(vocabulary) for _ in range(num_prompt)]
        params = SamplingParams(temperature=0.0, max_tokens=num_output, min_tokens=num_output, ignore_eos=True)
        async for _ in llm.submit(prompt, params):
            if llm.engine.clock.now() >= until_s:
                break


async def _report(llm: AsyncLLM, begin_s: float, seconds: float, on_progress: Progress) -> None:
    while True:
        on_progress("live steps", min(seconds, llm.engine.clock.now() - begin_s), seconds)
        await asyncio.sleep(0.5)
