"""What a reader must know before believing a run's numbers."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from headway.report.metrics import RunMetrics
from headway.report.percentiles import summarize
from headway.report.record import Outcome, RunRecord

MAX_BAD_SHARE = 0.05
MAX_BLIND_RATIO = 1.05
MAX_LAG_S = 0.05
MIN_TAIL = 10  # values beyond a percentile that make it more than an anecdote


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Whether the latencies may be quoted, and what speaks against the run, worst first."""

    is_valid: bool
    warnings: tuple[str, ...]


def judge(run: RunRecord, metrics: RunMetrics) -> Verdict:
    """Look for what makes measurements lie: failures, a slow client, guessed token counts, small samples."""
    grave = [*_failures(metrics), *_interrupted(run)]
    other = [*_client(run, metrics), *_counts(run), *_samples(metrics), *run.notes]
    return Verdict(is_valid=not grave, warnings=tuple(dict.fromkeys((*grave, *other))))  # a note may say it, too


def _failures(metrics: RunMetrics) -> list[str]:
    total = metrics.total
    if total.num_requests == 0:
        return ["no request falls into the measured window"]
    if total.outcomes.get(Outcome.OK, 0) == 0:
        return ["not one request was answered in full"]
    if total.failure_share <= MAX_BAD_SHARE:
        return []
    refused, failed = total.outcomes.get(Outcome.REFUSED, 0), total.outcomes.get(Outcome.FAILED, 0)
    what = f"{total.failure_share:.0%} of the requests were refused ({refused}) or failed ({failed})"
    return [f"{what}, more than {MAX_BAD_SHARE:.0%}: latencies are those of the lucky ones, no measure of this load"]


def _interrupted(run: RunRecord) -> list[str]:
    return [] if run.is_complete else ["the run was interrupted; this is what was measured until then"]


def _client(run: RunRecord, metrics: RunMetrics) -> list[str]:
    found = []
    latencies = metrics.total.latencies
    seen, blind = latencies.ttft.mean, latencies.ttft_since_sent.mean
    if latencies.ttft.size and blind > 0 and seen / blind > MAX_BLIND_RATIO:
        found.append(
            f"requests waited in the client: mean TTFT is {seen * 1e3:.1f} ms from the intended time, "
            f"{blind * 1e3:.1f} ms from sending"
        )
    if len(run.client_lag_s):
        lag_s = summarize(run.client_lag_s).at(99.0)
        if lag_s > MAX_LAG_S:
            found.append(
                f"the client was the bottleneck at times: its own loop woke up to {lag_s * 1e3:.0f} ms late (P99)"
            )
    return found


def _counts(run: RunRecord) -> list[str]:
    guessed = Counter(request.count_source for request in run.requests if request.num_output)
    num_guessed = guessed["retokenized"] + guessed["chunks"]
    if not num_guessed:
        return []
    return [f"the server did not count the tokens of {num_guessed} answers; they are estimated from the text or chunks"]


def _samples(metrics: RunMetrics) -> list[str]:
    summary = metrics.total.latencies.ttft
    shaky = [level for level in summary.levels if 0 < summary.size * (100 - level) / 100 < MIN_TAIL and level > 50]
    if not shaky:
        return []
    names = ", ".join(f"P{level:g}" for level in shaky)
    return [f"{names} of TTFT rest on fewer than {MIN_TAIL} values beyond them (sample size {summary.size})"]
