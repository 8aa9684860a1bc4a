"""What one run of a policy comes to, and the middle of several."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

from headway.report import Outcome, RunRecord, StepSample, summarize


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """All of a run's requests together: they are the same for all policies, so nothing is left out.

    Tokens per second count from the start to the last answer. Times are in milliseconds. `num_recomputed` and
    `num_wasted` count rows of the model. `speed` is the machine's in the run, 1 being what it was when the base
    rate was measured. `lag_p99_ms` is how late the client itself woke up, in real time: latencies are that uncertain.
    """

    duration_s: float
    output_throughput: float
    ttft_p50_ms: float
    ttft_p95_ms: float
    ttft_p99_ms: float
    itl_p50_ms: float
    itl_p99_ms: float
    itl_max_ms: float
    num_preemptions: int
    num_recomputed: int
    num_wasted: int
    num_computed: int
    num_steps: int
    num_failed: int
    num_ttft: int
    num_itl: int
    speed: float = 1.0
    lag_p99_ms: float = 0.0


def score(run: RunRecord, speed: float = 1.0) -> Score:
    """The figures of one run, while the machine had that `speed`. Latencies are those of whole answers."""
    whole = [record for record in run.requests if record.is_ok]
    end_s = max((record.last_s or 0.0 for record in whole), default=0.0)
    ttft = summarize((record.ttft_s * 1e3 for record in whole if record.ttft_s is not None), (50, 95, 99))
    itl = summarize((gap_s * 1e3 for record in whole for gap_s in record.itl_s), (50, 99))
    server = run.server
    return Score(
        duration_s=end_s,
        output_throughput=sum(record.num_output for record in whole) / end_s if end_s else 0.0,
        ttft_p50_ms=ttft.at(50),
        ttft_p95_ms=ttft.at(95),
        ttft_p99_ms=ttft.at(99),
        itl_p50_ms=itl.at(50),
        itl_p99_ms=itl.at(99),
        itl_max_ms=itl.high,
        num_preemptions=int(server.get("num_preemptions", 0)),
        num_recomputed=int(server.get("recomputed_tokens", 0)),
        num_wasted=int(server.get("wasted_tokens", 0)),
        num_computed=int(server.get("computed_tokens", 0)),
        num_steps=int(server.get("num_steps", 0)),
        num_failed=sum(record.outcome is not Outcome.OK for record in run.requests),
        num_ttft=ttft.size,
        num_itl=itl.size,
        speed=speed,
        lag_p99_ms=summarize((lag_s * 1e3 for lag_s in run.client_lag_s or (0.0,)), (99,)).at(99),
    )


def middle(scores: Sequence[Score]) -> Score:
    """The median of each figure by itself, of the rounds that have it; of failed requests the most.

    A median would not show requests that failed in fewer than half of the rounds.
    """
    names = [field.name for field in fields(Score)]
    medians: dict[str, Any] = {name: statistics.median(_known(scores, name) or [math.nan]) for name in names}
    counts = {name: round(value) for name, value in medians.items() if name.startswith("num_")}
    return Score(**(medians | counts | {"num_failed": max(one.num_failed for one in scores)}))


def spread(scores: Sequence[Score], name: str) -> tuple[float, float]:
    """Least and greatest of a figure, of the rounds that have it; NaN where none does."""
    values = _known(scores, name) or [math.nan]
    return min(values), max(values)


def _known(scores: Sequence[Score], name: str) -> list[float]:
    """A figure in each round, but for those where it is none: nobody was answered there."""
    return [value for one in scores if not math.isnan(value := getattr(one, name))]


def sustained_rate(num_requests: int, steps: Sequence[StepSample]) -> float:
    """Requests per second that an engine gets through when there is always work: from a run with all at once.

    It ends where 95 % of the tokens are computed: behind that, the last long answers leave the machine half idle.
    """
    computed = [step.num_prefill + step.num_decode for step in steps]
    goal, done = 0.95 * sum(computed), 0
    for step, num in zip(steps, computed, strict=True):
        done += num
        if done >= goal:
            return 0.95 * num_requests / (step.start_s + step.duration_s - steps[0].start_s)
    raise AssertionError("an engine that was measured has computed something")
