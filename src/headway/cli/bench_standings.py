"""The results of `headway bench policies`: as tables, lines and JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from headway.bench.contest import Contest, Heat, Standings
from headway.bench.logbook import Logbook
from headway.bench.maker import Maker, code_version, warning
from headway.bench.pace import GLANCE_TOKENS
from headway.bench.score import Score, spread
from headway.bench.verdict import claims
from headway.cli.bench_output import require_writable
from headway.cli.collect_env import environment
from headway.engine import Engine
from headway.report import Grid

_FOLLOWED = (
    " Speed is the machine's in the runs: time followed it, arrivals too, so that all figures are those at 100, its "
    "usual speed at the beginning."
)


def grid(standings: Standings, factor: float) -> Grid:
    """The table at one rate, by throughput."""
    middles = standings.middles(factor)
    runs = standings.at(factor)
    rows = sorted(middles.items(), key=lambda entry: -entry[1].output_throughput)
    some = rows[0][1]
    return Grid(
        title=f"{factor:g} × the rate that vllm sustains here ({factor * standings.base_rate:.3g} requests/s), "
        f"median of {max(map(len, runs.values()))}",
        columns=[
            "policy",
            *("tok/s", "± %"),
            *("TTFT P50", "P95", "P99 ms"),
            *("ITL P50", "P99", "± %", "max ms"),
            *("preempt.", "recomp.", "wasted", "failed"),
            *(("speed %", "± %") if standings.follows_speed else ()),
        ],
        rows=[
            [policy, *_cells(score, runs[policy]), *(_speed(score, runs[policy]) if standings.follows_speed else ())]
            for policy, score in rows
        ],
        note=f"Sample sizes of a run: {some.num_ttft:,} TTFT, {some.num_itl:,} ITL. Recomputed and wasted are tokens. "
        "± is half of what lies between the least and the greatest of the runs, failed is the most of any."
        + _left_out(standings.num_left_out(factor))
        + _unanswered(runs)
        + (_FOLLOWED if standings.follows_speed else "")
        + _lag(runs),
    )


def _cells(score: Score, runs: Sequence[Score]) -> list[float]:
    return [
        *(score.output_throughput, _range(runs, "output_throughput")),
        *(score.ttft_p50_ms, score.ttft_p95_ms, score.ttft_p99_ms),
        *(score.itl_p50_ms, score.itl_p99_ms, _range(runs, "itl_p99_ms"), score.itl_max_ms),
        *(score.num_preemptions, score.num_recomputed, score.num_wasted, score.num_failed),
    ]


def _speed(score: Score, runs: Sequence[Score]) -> list[float]:
    return [100.0 * score.speed, _range(runs, "speed")]


def _left_out(num_runs: int) -> str:
    """What was measured and is not compared."""
    return f" In no figure, as not all policies have finished their rounds: {num_runs} runs." if num_runs else ""


def _unanswered(runs: Mapping[str, Sequence[Score]]) -> str:
    """Who had runs without a single answer; such a run has no latencies, so the others alone are in the medians."""
    counts = {policy: sum(not score.num_ttft for score in scores) for policy, scores in runs.items()}
    named = ", ".join(f"{policy} {count} of {len(runs[policy])}" for policy, count in counts.items() if count)
    return f" Runs without an answer, which latencies leave out: {named}." if named else ""


def _lag(runs: Mapping[str, Sequence[Score]]) -> str:
    """How late the client was at worst; nothing where older logs do not know."""
    lag_ms, policy = max((score.lag_p99_ms, policy) for policy, scores in runs.items() for score in scores)
    return f" The client's own loop woke up to {lag_ms:.2g} ms late (P99, at worst: {policy})." if lag_ms else ""


def _range(runs: Sequence[Score], name: str) -> float:
    """Half the range of a figure, in percent of its middle."""
    low, high = spread(runs, name)
    centre = low + high
    return 100.0 * (high - low) / centre if centre else 0.0


def verdict(standings: Standings, factor: float) -> list[dict[str, Any]]:
    """What came of the project's claims at one rate."""
    return [asdict(claim) for claim in claims(standings.middles(factor))]


def lines(contest: Contest, standings: Standings) -> Iterator[str]:
    """A table for each rate, and below it whether the project's claims hold."""
    for factor in contest.factors:
        if standings.middles(factor):
            if mixed := warning(standings.makers_at(factor)):
                yield f"! {mixed}"
            yield grid(standings, factor).to_text()
            for claim in verdict(standings, factor):
                yield f"  {'yes' if claim['holds'] else 'no '}  {claim['text']}"


def document(contest: Contest, standings: Standings, engine: Engine) -> dict[str, Any]:
    """Everything, for `--json`."""
    return {
        "base_rate": standings.base_rate,
        "is_complete": standings.is_complete,
        "follows_speed": standings.follows_speed,
        "engine": {"model": engine.name, "executor": engine.config.executor, "threads": engine.compute.threads},
        "limits": asdict(engine.limits),
        "workload": asdict(contest.load),
        "repeats": contest.repeats,
        "skipped": standings.skipped,
        "rates": [
            {
                "factor": factor,
                "rate": factor * standings.base_rate,
                "warning": warning(standings.makers_at(factor)) or None,
                "num_left_out": standings.num_left_out(factor),
                "policies": {policy: asdict(score) for policy, score in standings.middles(factor).items()},
                "runs": {
                    policy: [asdict(score) for score in scores]
                    for (at, policy), scores in standings.scores.items()
                    if at == factor
                },
                "makers": {
                    policy: [asdict(maker) for maker in makers]
                    for (at, policy), makers in standings.makers.items()
                    if at == factor
                },
                "claims": verdict(standings, factor),
            }
            for factor in contest.factors
        ],
    }


def check_log(path: Path | None) -> None:
    """Raise `BadSetting` for a file of runs that cannot be written, before any model is loaded."""
    if path is not None:
        require_writable(path, f"--log {path}")


def open_log(path: Path | None, contest: Contest, engine: Engine) -> Logbook | None:
    """The file of finished runs, which fits one model, its kernels, limits, workload and settings; None without one."""
    if path is None:
        return None
    config, compute = engine.config, engine.compute
    about = {
        "model": engine.name,
        "executor": config.executor,
        "weights": compute.weights,
        "kv_dtype": compute.kv_dtype,
        "kernels": compute.kernels,
        "threads": compute.threads,
        "prefix_cache": config.prefix_cache,
        "max_num_seqs": config.max_num_seqs,
        "max_num_batched_tokens": config.max_num_batched_tokens,
        "limits": asdict(engine.limits),
        "base_rate": contest.base_rate,
        "timeout_s": contest.timeout_s,
        "glance_tokens": GLANCE_TOKENS if contest.base_rate is None else None,
        "workload": asdict(contest.load),
        "settings": {policy: dict(values) for policy, values in contest.settings.items()},
    }
    return Logbook(path, about, Maker(code=code_version(), processor=environment()["cpu"]["model"]))


def heading(heat: Heat) -> str:
    """Where the contest is."""
    where = f"{heat.number}/{heat.num_heats}" if heat.num_heats else "first: what vllm sustains"
    rate = f" at {heat.factor:g} ×" if heat.num_heats else ""
    return f"{where}  {heat.policy}{rate}"


def line(heat: Heat, score: Score) -> str:
    """A finished run in a line."""
    return (
        f"{heading(heat):<32} {score.output_throughput:7.1f} tok/s  TTFT P50 {score.ttft_p50_ms:9.1f} "
        f"P99 {score.ttft_p99_ms:9.1f} ms  ITL P50 {score.itl_p50_ms:7.1f} P99 {score.itl_p99_ms:8.1f} ms  "
        f"speed {100 * score.speed:.0f} %"
    )
