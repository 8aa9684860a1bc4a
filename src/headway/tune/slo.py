"""The table of promises that settings are judged by."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from headway.core import unreadable
from headway.errors import BadSetting
from headway.report import Outcome, RequestRecord, RunRecord, summarize
from headway.workload.loading import KINDS, parse_text

USAGE, REFUSED = "kv_cache_utilization_max", "admission_reject_rate_max"
_TIMED = re.compile(r"(ttft|itl|tpot|e2e|queue_wait)_p(\d{1,2})_ms", re.ASCII)
_WATCHED = re.compile(r"(ttft|itl|queue_wait)_p\d{1,2}_ms", re.ASCII)
_KNOWN = f"ttft_pNN_ms, itl_pNN_ms, tpot_pNN_ms, e2e_pNN_ms, queue_wait_pNN_ms, {USAGE}, {REFUSED}"
_NEVER = float("inf")


@dataclass(frozen=True, slots=True)
class SloTable:
    """Limits by key: percentiles of durations in milliseconds, the fullest the KV cache may be, the share refused."""

    limits: Mapping[str, float]

    def __post_init__(self) -> None:
        """Check every key and limit. Raises `BadSetting`."""
        if not self.limits:
            raise BadSetting(f"the SLO table is empty; it may hold {_KNOWN}")
        for key, limit in self.limits.items():
            if key not in (USAGE, REFUSED) and not _TIMED.fullmatch(key):
                raise BadSetting(f"the SLO table has {key!r}; known: {_KNOWN}")
            most = 1.0 if key in (USAGE, REFUSED) else 1e9
            is_number = isinstance(limit, int | float) and not isinstance(limit, bool)
            if not is_number or not 0 <= limit <= most or (limit == 0 and key != REFUSED):
                raise BadSetting(f"{key} is {limit!r}; it must be a number above 0 and at most {most:g}")

    def watched(self) -> dict[str, float]:
        """What a server's guardrails can watch."""
        return {key: limit for key, limit in self.limits.items() if key == USAGE or _WATCHED.fullmatch(key)}

    def limit_s(self, *metrics: str) -> float | None:
        """The first limit on one of these durations, in seconds."""
        for metric in metrics:
            for key, limit in self.limits.items():
                if key.startswith(f"{metric}_p"):
                    return limit / 1e3
        return None

    def values(self, run: RunRecord) -> dict[str, float]:
        """What a run came to, key by key; infinite where nothing was answered."""
        return {key: _value(key, run) for key in self.limits}

    def broken(self, values: Mapping[str, float]) -> list[str]:
        """The keys over their limits, the worst first."""
        excess = {key: value / max(self.limits[key], 1e-9) for key, value in values.items()}
        return sorted((key for key in values if values[key] > self.limits[key]), key=lambda key: -excess[key])


def read_slo(path: Path) -> SloTable:
    """The table of a .toml, .yaml or .json file, or of lines and commas of `key value`. Raises `BadSetting`."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise unreadable(path, error) from None
    try:
        content = parse_text(text, KINDS[path.suffix], str(path)) if path.suffix in KINDS else _plain(text)
        return _table(content.get("slo", content))
    except BadSetting as error:
        raise BadSetting(str(error) if str(path) in str(error) else f"{path}: {error}") from None


def _table(found: object) -> SloTable:
    if not isinstance(found, dict):
        raise BadSetting(f"slo is {found!r}; it must be a table of limits")
    return SloTable(found)


def _plain(text: str) -> dict[str, object]:
    table: dict[str, object] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        for entry in filter(None, (part.strip() for part in line.partition("#")[0].split(","))):
            key, _, value = entry.replace("=", " ").partition(" ")
            try:
                table[key] = float(value)
            except ValueError:
                raise BadSetting(f"line {number}: {entry!r} is not like ttft_p95_ms 1500") from None
    return table


def _value(key: str, run: RunRecord) -> float:
    if key == REFUSED:
        refused = sum(record.outcome is Outcome.REFUSED for record in run.requests)
        return refused / len(run.requests) if run.requests else 0.0
    if key == USAGE:
        return max((step.kv_use or 0.0 for step in run.steps), default=0.0)
    found = _TIMED.fullmatch(key)
    assert found is not None, "keys were checked"
    metric, level = found[1], float(found[2])
    sample = summarize(_seconds(metric, run), (level,))
    if sample.size:
        return sample.at(level) * 1e3
    return 0.0 if metric in ("itl", "tpot") and any(record.is_ok for record in run.requests) else _NEVER


def _seconds(metric: str, run: RunRecord) -> list[float]:
    if metric == "itl":
        return [gap_s for record in run.requests for gap_s in record.itl_s]
    if metric in ("ttft", "queue_wait"):
        waits = (_wait_s(metric, record) for record in run.requests)
        return [wait_s for wait_s in waits if wait_s is not None]
    whole = [record for record in run.requests if record.is_ok]
    values = [record.tpot_s if metric == "tpot" else record.e2e_s for record in whole]
    return [value for value in values if value is not None]


def _wait_s(metric: str, record: RequestRecord) -> float | None:
    """Seconds before the first token, or before it was begun.

    Whoever left without a token waited until then: were only those counted that stayed, a setting under which the
    others lose patience would keep its promises. What was refused counts in its own key.
    """
    found = record.ttft_s if metric == "ttft" else record.queue_s
    if found is None and record.first_s is None and record.outcome is not Outcome.REFUSED:
        return record.end_s - record.intended_s
    return found
