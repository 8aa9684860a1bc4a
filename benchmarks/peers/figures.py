"""What is read from one run: a few numbers with units in their names."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np

from benchmarks.peers.systems import Answer, Measured
from benchmarks.peers.work import LONG_AT_S

Figures = dict[str, float]


def of_serving(seen: Measured) -> Figures:
    """Output tokens of all requests ÷ the run's wall time, and what its clients felt."""
    found = {
        "output_tok_s": sum(len(one.token_s) for one in seen.answers) / seen.duration_s,
        "itl_p50_ms": _percentile_ms(_gaps(seen.answers), 50),
        "itl_p99_ms": _percentile_ms(_gaps(seen.answers), 99),
        "ttft_p50_ms": _percentile_ms([one.token_s[0] - one.sent_s for one in seen.answers], 50),
    }
    if executor_s := seen.counters.get("executor_seconds"):
        found["outside_executor_share"] = 1.0 - executor_s / seen.duration_s
    return found


def of_stream(seen: Measured) -> Figures:
    """Tokens a second behind the first one, the median over answers."""
    rates = [(len(one.token_s) - 1) / (one.token_s[-1] - one.token_s[0]) for one in seen.answers]
    return {"output_tok_s": float(np.median(rates))}


def of_prefill(seen: Measured) -> Figures:
    """Prompt tokens ÷ time to first token, the median over prompts."""
    return {"prompt_tok_s": float(np.median([one.num_prompt / (one.token_s[0] - one.sent_s) for one in seen.answers]))}


def of_interference(seen: Measured) -> Figures:
    """Gaps of the short streams before the first long prompt and from it on, and the long prompts' wait."""
    short = [one for one in seen.answers if one.kind == "short"]
    long = [one for one in seen.answers if one.kind == "long"]
    began_s, calm_s, ends_s = LONG_AT_S[0] - 2.5, LONG_AT_S[0], max(one.token_s[-1] for one in long)
    calm = _gaps(short, began_s, calm_s)
    disturbed = _gaps(short, calm_s, ends_s)
    return {
        "calm_itl_p50_ms": _percentile_ms(calm, 50),
        "itl_p50_ms": _percentile_ms(disturbed, 50),
        "itl_p99_ms": _percentile_ms(disturbed, 99),
        "long_ttft_ms": _percentile_ms([one.token_s[0] - one.sent_s for one in long], 50),
    }


def _gaps(answers: Sequence[Answer], from_s: float = 0.0, to_s: float = float("inf")) -> list[float]:
    """Gaps that end within a stretch of time, of all answers together."""
    return [later - earlier for one in answers for earlier, later in pairwise(one.token_s) if from_s <= later < to_s]


def _percentile_ms(values: Sequence[float], level: float) -> float:
    return 1e3 * float(np.percentile(values, level)) if values else float("nan")


FIGURES: dict[str, Callable[[Measured], Figures]] = {
    "serving": of_serving,
    "stream": of_stream,
    "prefill": of_prefill,
    "interference": of_interference,
}


def figures(work: str, seen: Measured) -> Figures:
    """The numbers of a run of the work of that name, with what every run tells. What was not seen is left out."""
    found = FIGURES[work.rstrip("0123456789")](seen)
    told = {"start_s": seen.start_s, "resident_mb": seen.resident_bytes / 1e6}
    return {name: value for name, value in {**found, **told}.items() if not math.isnan(value)}
