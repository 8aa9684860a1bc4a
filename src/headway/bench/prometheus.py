"""Counters that a server tells at /metrics, in Headway's, vLLM's or SGLang's spelling."""

from __future__ import annotations

import math
import re

_SAMPLE = re.compile(r"(?:headway|vllm|sglang):(\w+?)(?:_total)?(\{[^}]*\})? +(\S+)")
_ENTRY = re.compile(r'[{,]entry="(\w+)"')
_LEDGER = "token_ledger"

COUNTERS = (
    "prompt_tokens",
    "generation_tokens",
    "num_preemptions",
    "prefix_cache_queries",
    "prefix_cache_hits",
    "executor_seconds",
    "tokens_computed",
    _LEDGER,
)
"""Those that a report can use. Others are left alone. The ledger says what became of each computed token."""


def read_counters(text: str) -> dict[str, float]:
    """Totals by name, summed over label values, but the token ledger's by entry: `token_ledger_useful`, ...

    Names that are no counter of ours are passed over.
    """
    found: dict[str, float] = {}
    for line in text.splitlines():
        match = _SAMPLE.match(line)
        if match is None or match[1] not in COUNTERS:
            continue
        try:
            value = float(match[3])
        except ValueError:
            continue
        entry = _ENTRY.search(match[2] or "")
        name = f"{_LEDGER}_{entry[1]}" if match[1] == _LEDGER and entry else match[1]
        if math.isfinite(value):
            found[name] = found.get(name, 0.0) + value
    return found
