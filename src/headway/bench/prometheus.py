"""Counters that a server tells at /metrics, in Headway's, vLLM's or SGLang's spelling."""

from __future__ import annotations

import math
import re

_SAMPLE = re.compile(r"(?:headway|vllm|sglang):(\w+?)(?:_total)?(?:\{[^}]*\})? +(\S+)")

COUNTERS = (
    "prompt_tokens",
    "generation_tokens",
    "num_preemptions",
    "prefix_cache_queries",
    "prefix_cache_hits",
    "recomputed_tokens",
    "wasted_tokens",
    "executor_seconds",
)
"""Those that a report can use. Others are left alone."""


def read_counters(text: str) -> dict[str, float]:
    """Totals by name, summed over label values. Names that are no counter of ours are passed over."""
    found: dict[str, float] = {}
    for line in text.splitlines():
        match = _SAMPLE.match(line)
        if match is None or match[1] not in COUNTERS:
            continue
        try:
            value = float(match[2])
        except ValueError:
            continue
        if math.isfinite(value):
            found[match[1]] = found.get(match[1], 0.0) + value
    return found
