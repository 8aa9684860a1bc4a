"""The `behaviour` and `slo` tables."""

from __future__ import annotations

from headway.core import Slo
from headway.workload.behaviour import Behaviour
from headway.workload.laws import POSITIVE_S, read_durations, read_lengths
from headway.workload.rules import number, whole
from headway.workload.table import Table


def read_slo(table: Table) -> Slo | None:
    """The `slo` table: ttft, tpot and e2e, each in `_s` or `_ms`. Raises `BadSetting`."""
    inner = table.table("slo")
    if inner is None:
        return None
    slo = Slo(ttft_s=_limit(inner, "ttft"), tpot_s=_limit(inner, "tpot"), e2e_s=_limit(inner, "e2e"))
    inner.done()
    return slo


def _limit(table: Table, name: str) -> float | None:
    in_s, in_ms = table.take(f"{name}_s", POSITIVE_S), table.take(f"{name}_ms", number(1e-3, 1e10))
    if in_s is not None and in_ms is not None:
        raise table.error(f"{name}_ms", f"is given and {name}_s as well; give one of them")
    return in_s if in_ms is None else in_ms / 1000


def read_behaviour(table: Table) -> Behaviour | None:
    """The `behaviour` table. Raises `BadSetting`."""
    inner = table.table("behaviour")
    if inner is None:
        return None
    share, backoff_s = number(0, 1), inner.take("backoff_s", number(0, 3600))
    behaviour = Behaviour(
        cancel_share=inner.take("cancel_share", share) or 0.0,
        cancel_tokens=read_lengths(inner, "cancel_after_tokens") if "cancel_after_tokens" in inner else None,
        cancel_after=read_durations(inner, "cancel_after_s"),
        slow_share=inner.take("slow_share", share) or 0.0,
        slow_tokens_s=inner.take("slow_tokens_s", number(1e-3, 1e6)) or 0.0,
        retries=inner.take("retries", whole(0, 100)) or 0,
        backoff_s=1.0 if backoff_s is None else backoff_s,
    )
    inner.done()
    if behaviour.cancel_share and behaviour.cancel_tokens is None and behaviour.cancel_after is None:
        raise inner.error("cancel_share", "says how many give up; say when: cancel_after_tokens or cancel_after_s")
    if behaviour.slow_share and not behaviour.slow_tokens_s:
        raise inner.error("slow_share", "says how many read slowly; say how slowly: slow_tokens_s")
    return behaviour
