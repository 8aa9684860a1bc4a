"""What `headway tune` writes and says."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headway.sim import Calibration
    from headway.tune import Outcome

_BUILT = (
    "executor",
    "weights",
    "kv_dtype",
    "threads",
    "max_model_len",
    "num_blocks",
    "kv_cache_memory",
    "prefix_cache",
)
"""Flags that the tuned engine was built with, and that its server needs as well."""


def config_of(outcome: Outcome, calibration: Calibration, given: Mapping[str, Any]) -> str:
    """The config file's text."""
    from headway.tune import config_text

    verified = outcome.verified
    notes = [
        f"Written by headway tune for {calibration.about.get('model') or f'the engine of {calibration.origin}'}.",
        *([] if outcome.is_complete else ["The search was interrupted; of what had been tried this is the best."]),
        _rate(outcome),
        f"First to break beyond it: {outcome.breaks_first()}.",
        "Not verified live."
        if verified is None
        else f"Live at {verified.factor / outcome.chosen.factor:.0%} of that rate: "
        + ("all promises kept." if verified.keeps else f"broke {', '.join(verified.broken)}."),
    ]
    built = {name: given[name] for name in _BUILT if given[name] not in (None, "hashed")}
    return config_text(outcome, built, notes)


def summary_text(outcome: Outcome) -> str:
    """Each stage's table and the verdict."""
    from headway.tune.page import run_grid

    blocks = [
        run_grid(stage.samples, f"{number}. {stage.name}").to_text()
        for number, stage in enumerate(outcome.stages, start=1)
        if stage.samples
    ]
    if outcome.beyond:
        blocks.append(run_grid(outcome.beyond, "beyond").to_text())
    verdict = "all promises kept" if outcome.is_kept else "a promise is broken"
    if not outcome.is_complete:
        verdict += ", as far as the search came before it was interrupted"
    blocks.append(
        f"{outcome.chosen.setting.label()}: {verdict}\n{_rate(outcome)}\nfirst to break: {outcome.breaks_first()}\n"
        f"guardrails: {outcome.guards.text()}"
    )
    return "\n\n".join(blocks)


def _rate(outcome: Outcome) -> str:
    chosen = outcome.chosen
    rate = outcome.rate * chosen.factor
    speed = f"{rate:.2f} requests/s, {chosen.factor:.2f} times the workload" if math.isfinite(rate) else "its own rate"
    if not chosen.keeps:
        return f"No setting keeps all promises in virtual time; at {speed} this one breaks {', '.join(chosen.broken)}."
    return f"Keeps all promises up to {speed}, {chosen.output_rate:,.0f} output tokens/s, in virtual time."
