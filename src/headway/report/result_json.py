"""A run's result as JSON: vLLM's benchmark keys at the top, so that plotters read it, and ours under `headway`.

The top is over the steady window, as everything we report; `headway.whole_run` has the same rates with start and drain.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict

from headway.report.metrics import Group, RunMetrics, measure
from headway.report.percentiles import Summary
from headway.report.reasons import reasons_of
from headway.report.record import Outcome, RunRecord
from headway.report.validity import judge

Json = dict[str, object]


def result_json(run: RunRecord, metrics: RunMetrics | None = None) -> Json:
    """The document: numbers only where there are any, None elsewhere, so that every JSON reader takes it."""
    metrics = metrics or measure(run)
    total = metrics.total
    document: Json = {
        "date": run.started_at,
        "label": run.label,
        **_what_was_run(run),
        "duration": metrics.window.length_s,
        "completed": total.outcomes.get(Outcome.OK, 0),
        "failed": total.outcomes.get(Outcome.FAILED, 0) + total.outcomes.get(Outcome.REFUSED, 0),
        **_rates(total),
        "max_output_tokens_per_s": metrics.peak_output_rate,
        "max_concurrent_requests": metrics.max_in_flight,
        **_latencies(total),
        "headway": _ours(run, metrics),
    }
    return {key: plain(value) for key, value in document.items()}


def with_details(document: Json, run: RunRecord) -> Json:
    """The document with vLLM's per-request lists added. Seconds; in the order of `run.requests`."""
    return document | {
        "input_lens": [request.num_prompt for request in run.requests],
        "output_lens": [request.num_output for request in run.requests],
        "ttfts": [request.ttft_s for request in run.requests],
        "itls": [request.itl_s for request in run.requests],
        "start_times": [request.intended_s for request in run.requests],
        "errors": ["" if request.is_ok else f"{request.outcome.value}: {request.reason}" for request in run.requests],
    }


def _what_was_run(run: RunRecord) -> Json:
    """What vLLM's plotters name and sort runs by; None where it is not known, as the rate of a replayed trace."""
    arrivals = run.workload.get("arrivals")
    law = arrivals if isinstance(arrivals, Mapping) else {}
    return {
        "backend": run.target.get("kind"),
        "model_id": run.target.get("model"),
        "num_prompts": len(run.requests),
        "request_rate": "inf" if law.get("process") == "at_once" else law.get("rate"),
    }


def _rates(group: Group) -> Json:
    return {
        "total_input_tokens": group.num_input,
        "total_output_tokens": group.num_output,
        "request_throughput": group.request_rate,
        "request_goodput": group.goodput,
        "output_throughput": group.output_rate,
        "total_token_throughput": group.input_rate + group.output_rate,
    }


def _latencies(group: Group) -> Json:
    """mean_, median_, std_ and pNN_ of ttft, tpot, itl and e2el, in milliseconds."""
    parts = group.latencies
    named = {"ttft": parts.ttft, "tpot": parts.tpot, "itl": parts.itl, "e2el": parts.e2e}
    values: Json = {}
    for name, summary in named.items():
        values |= {f"mean_{name}_ms": 1e3 * summary.mean, f"median_{name}_ms": 1e3 * summary.median}
        values |= {f"std_{name}_ms": 1e3 * summary.std}
        values |= {f"p{level:g}_{name}_ms": 1e3 * value for level, value in summary.levels.items()}
        values |= {f"max_{name}_ms": 1e3 * summary.high, f"num_{name}": summary.size}
    return values


def _ours(run: RunRecord, metrics: RunMetrics) -> Json:
    verdict = judge(run, metrics)
    return {
        "window": {"begin_s": metrics.window.begin_s, "end_s": metrics.window.end_s, "rule": metrics.window.rule},
        "is_valid": verdict.is_valid,
        "warnings": list(verdict.warnings),
        "is_complete": run.is_complete,
        "is_virtual": run.is_virtual,
        "run_s": run.duration_s,
        "reasons": [asdict(reason) for reason in reasons_of(run.requests)],
        "total": group_json(metrics.total),
        "whole_run": group_json(metrics.whole),
        "classes": {name: group_json(group) for name, group in metrics.classes.items()},
        "tenants": {name: group_json(group) for name, group in metrics.tenants.items()},
        "prompt_lengths": {name: group_json(group) for name, group in metrics.lengths.items()},
        "jain_service": metrics.jain_service,
        "jain_satisfaction": metrics.jain_satisfaction,
        "service_gap_tokens": metrics.service_gap,
        "ledger": asdict(metrics.ledger),
        "server": dict(run.server),
        "target": dict(run.target),
        "environment": dict(run.environment),
        "workload": dict(run.workload),
    }


def group_json(group: Group) -> Json:
    """A group's numbers; latencies in milliseconds with sample sizes."""
    parts = group.latencies
    named: Mapping[str, Summary] = {
        "queue": parts.queue,
        "ttft": parts.ttft,
        "ttft_since_sent": parts.ttft_since_sent,
        "itl": parts.itl,
        "tpot": parts.tpot,
        "e2e": parts.e2e,
        "lateness": parts.lateness,
        "largest_gap": parts.largest_gap,
        "gap_deviation": parts.gap_deviation,
    }
    return {
        "num_requests": group.num_requests,
        "outcomes": {outcome.value: group.outcomes.get(outcome, 0) for outcome in Outcome},
        **_rates(group),
        "slo_attainment": group.attainment,
        "latency_ms": {name: _summary(summary) for name, summary in named.items() if summary.size},
    }


def _summary(summary: Summary) -> Json:
    levels = {f"p{level:g}": 1e3 * value for level, value in summary.levels.items()}
    return {
        "n": summary.size,
        "mean": 1e3 * summary.mean,
        "std": 1e3 * summary.std,
        **levels,
        "max": 1e3 * summary.high,
    }


def plain(value: object) -> object:
    """The value without what JSON has no word for: not-a-number and the infinities become None."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): plain(part) for key, part in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [plain(part) for part in value]
    return value if isinstance(value, str | int | None) else str(value)
