"""A run: every request sent at its moment, whatever became of the others, until all have ended."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime

from headway.bench.client import Client
from headway.bench.counting import CountTokens
from headway.bench.plan import RunPlan, visits
from headway.bench.progress import OnProgress, ProgressBook
from headway.bench.prompts import CallMaker
from headway.bench.target import Broken, Call, Target, Unauthorized, Unreachable
from headway.clock import Clock, WallClock
from headway.report import Outcome, RequestRecord, RunRecord
from headway.workload import WorkItem

TICK_S = 0.25
LAG_PERIOD_S = 0.05
NAP_S = 0.002
ROUNDING_S = 1e-9
INTERRUPTED = "the run was interrupted; this is what was measured until then"
MOST_UNREACHABLE = 10
"""After that many requests in a row that found nobody, the server counts as gone."""


class Runner:
    """Runs one plan against one target, once.

    A cancelled run (Ctrl-C) ends its requests and still returns what was measured. So does one whose server is gone
    or wants another key. `tokenize` is the target's tokenizer, for what the target does not count itself.
    """

    def __init__(
        self,
        target: Target,
        maker: CallMaker,
        clock: Clock,
        plan: RunPlan,
        *,
        tokenize: CountTokens | None = None,
        on_progress: OnProgress | None = None,
    ) -> None:
        self._target, self._maker, self._clock, self._plan = target, maker, clock, plan
        self._tokenize, self._on_progress = tokenize, on_progress
        limit = plan.max_concurrency
        self._gate = asyncio.Semaphore(limit) if limit else contextlib.nullcontext()
        self._book = ProgressBook(plan.num_total)
        self._records: dict[int, RequestRecord] = {}  # by order of sending
        self._lag_s: list[float] = []
        self._num_held = 0
        self._num_unreachable = 0
        self._stopped_by = ""
        self._is_over = asyncio.Event()
        self.start_s = 0.0  # the run's beginning on its clock, once it has begun

    async def run(self) -> RunRecord:
        """Everything that was measured. Raises `Broken` where not even the first request can be sent."""
        await self._target.check()
        items = iter(self._plan.items())
        first = next(items, None)
        if first is not None:
            await self._warm_up(first)
        before = await self._target.counters()
        started_at = datetime.now(UTC).isoformat(timespec="seconds")
        self.start_s = start_s = self._clock.now()
        client = Client(
            self._target, self._clock, start_s=start_s, timeout_s=self._plan.timeout_s, tokenize=self._tokenize
        )
        await self._run_all(client, itertools.chain([first] if first else [], items), start_s)
        duration_s = self._clock.now() - start_s
        is_gone = self._stopped_by not in ("", INTERRUPTED)
        after = {} if is_gone else await self._target.counters()
        by_sending = [record for _, record in sorted(self._records.items())]
        return RunRecord(
            requests=sorted(by_sending, key=lambda record: record.intended_s),
            duration_s=duration_s,
            label=self._plan.label,
            started_at=started_at,
            is_complete=not self._stopped_by,
            target=self._target.describe(),
            workload=self._plan.content,
            server={name: value - before.get(name, 0.0) for name, value in after.items()} if before else {},
            steps=self._target.steps(start_s),
            client_lag_s=self._lag_s,
            warmup_s=self._plan.warmup_s,
            is_closed_loop=self._plan.is_closed_loop,
            notes=self._notes(client),
        )

    async def run_whole(self) -> RunRecord:
        """As `run`, for whom half a run would mislead: a Ctrl-C goes on. Raises `Broken` where the server is gone."""
        record = await self.run()
        if self._stopped_by == INTERRUPTED:
            raise asyncio.CancelledError
        if self._stopped_by:
            raise Broken(self._stopped_by)
        return record

    async def _warm_up(self, first: WorkItem) -> None:
        """Requests before the run: connections open, pages are in memory, and a mistake shows before an hour is spent.

        Raises `Broken` where one fails; a refusal is no failure.
        """
        clock = self._clock
        patient = replace(
            first, cancel_tokens=None, cancel_s=None, read_tokens_s=None, retries=0, prefix=(), text_row=None
        )
        for number in range(self._plan.num_warmups):
            item = replace(patient, id=f"warm-up-{number}", prefix_block=0, seed=first.seed ^ (number + 1 << 40))
            client = Client(self._target, clock, start_s=clock.now(), timeout_s=self._plan.timeout_s)
            record, error = await client.send(item, self._call(item), clock.now())
            if record.outcome is Outcome.FAILED and error is not None:
                raise error

    async def _run_all(self, client: Client, items: itertools.chain[WorkItem], start_s: float) -> None:
        """Dispatch until all requests have ended, the run is cancelled, or the server is gone."""
        dispatch = asyncio.create_task(self._dispatch(client, items, start_s))
        dispatch.add_done_callback(lambda _: self._is_over.set())
        helpers = [asyncio.create_task(self._measure_lag()), asyncio.create_task(self._tick(client, start_s))]
        try:
            await self._is_over.wait()
        except asyncio.CancelledError:
            self._stopped_by = INTERRUPTED
        for task in (dispatch, *helpers):
            task.cancel()
        outcomes = await asyncio.gather(dispatch, *helpers, return_exceptions=True)
        for error in outcomes:
            if isinstance(error, Exception):
                raise error
        self._show(client, start_s)

    async def _dispatch(self, client: Client, items: itertools.chain[WorkItem], start_s: float) -> None:
        async with asyncio.TaskGroup() as group:
            for visit in visits(items):
                calls = [self._call(item) for item in visit]  # before their time has come: it costs the client time
                at_s = start_s + (visit[0].at_s or 0.0)
                await _until(at_s, self._clock)
                group.create_task(self._visit(client, visit, calls, start_s))

    async def _visit(self, client: Client, items: Sequence[WorkItem], calls: Sequence[Call], start_s: float) -> None:
        """One client's requests: the first at its moment, each other after the answer before it and a pause."""
        intended_s = start_s + (items[0].at_s or 0.0)
        for number, (item, call) in enumerate(zip(items, calls, strict=True)):
            if number:
                intended_s = self._clock.now() + item.think_s
                await _until(intended_s, self._clock)
            if self._plan.duration_s is not None and intended_s >= start_s + self._plan.duration_s:
                return
            self._num_held += 1
            async with self._gate:
                self._num_held -= 1
                self._book.num_sent += 1
                place = self._book.num_sent
                record, error = await client.send(item, call, intended_s)
            record = replace(record, weight=self._plan.weights.get(item.tenant, 1.0))
            self._records[place] = record
            self._book.add(record)
            self._judge(error)
            if self._is_over.is_set() or self._stopped_by:
                return

    def _judge(self, error: Exception | None) -> None:
        """Whether it makes sense to go on."""
        self._num_unreachable = self._num_unreachable + 1 if isinstance(error, Unreachable) else 0
        if isinstance(error, Unauthorized) or self._num_unreachable >= MOST_UNREACHABLE:
            self._stopped_by = f"the run was given up: {error}"
            self._is_over.set()

    def _call(self, item: WorkItem) -> Call:
        plan, tenant = self._plan, item.tenant
        call = self._maker.call(item)
        key, weight = plan.keys.get(tenant, ""), plan.weights.get(tenant, 1.0)
        return replace(call, tenant=tenant, key=key, weight=weight) if tenant or key else call

    async def _measure_lag(self) -> None:
        """How late this client wakes up, whatever the run's clock does: a busy client measures itself."""
        time = asyncio.get_running_loop().time
        while True:
            due_s = time() + LAG_PERIOD_S
            await asyncio.sleep(LAG_PERIOD_S)
            self._lag_s.append(max(0.0, time() - due_s))

    async def _tick(self, client: Client, start_s: float) -> None:
        while True:
            self._show(client, start_s)
            await asyncio.sleep(TICK_S)

    def _show(self, client: Client, start_s: float) -> None:
        if self._on_progress is not None:
            self._on_progress(self._book.snapshot(self._clock.now() - start_s, client.num_coming))

    def _notes(self, client: Client) -> list[str]:
        notes = [self._stopped_by] if self._stopped_by else []
        if self._num_held:
            notes.append(
                f"{self._num_held} requests were due, but still held back by max_concurrency; they are not counted"
            )
        if client.num_recounted:
            notes.append(
                f"{client.num_recounted} answers have another length by the server's usage than their text encoded "
                "again; the usage counts"
            )
        return notes


async def _until(moment_s: float, clock: Clock) -> None:
    """Wait for a moment on a clock whose seconds may be longer or shorter than real ones, and change meanwhile.

    Where it has passed, the others still have their turn.
    """
    is_real = isinstance(clock, WallClock)  # then one nap is enough: a thousand clients' many cost a tenth of a core
    time, nap_s, pace = asyncio.get_running_loop().time, NAP_S, 1.0
    await asyncio.sleep(max(0.0, moment_s - clock.now()) if is_real else 0.0)
    # What is left in real time at the fastest pace so far. Half of it is slept: the clock may become faster still.
    while (left_s := (moment_s - clock.now()) / pace) > ROUNDING_S:
        nap_s = left_s if left_s <= NAP_S else min(2.0 * nap_s, max(NAP_S, left_s / 2.0))
        begin_s, before_s = time(), clock.now()
        await asyncio.sleep(nap_s)
        passed_s = max(time() - begin_s, ROUNDING_S)
        pace = max(pace, round((clock.now() - before_s) / passed_s, 3))
