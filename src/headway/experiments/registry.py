"""Experiments by name. A module is imported when its experiment is asked for."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Callable
from typing import cast

from headway.errors import BadSetting
from headway.experiments.effort import Effort
from headway.experiments.finding import Finding

EXPERIMENTS = {
    "static": "headway.experiments.request_level",
    "orca": "headway.experiments.orca",
    "vllm": "headway.experiments.paged",
    "fastserve": "headway.experiments.feedback",
    "sarathi": "headway.experiments.piggyback",
    "sarathi-serve": "headway.experiments.stall_free",
    "sglang": "headway.experiments.prefix_reuse",
    "vtc": "headway.experiments.fairness",
    "splitfuse": "headway.experiments.split_fuse",
    "distserve": "headway.experiments.disaggregation",
    "dynamic-batch": "headway.experiments.adaptive_batch",
}
"""In the order of the document. Each module has a function `reproduce(effort) -> Finding`."""


def experiment(name: str) -> Callable[[Effort], Finding]:
    """What runs an experiment. Raises `BadSetting` naming the known ones."""
    if name not in EXPERIMENTS:
        near = difflib.get_close_matches(name, EXPERIMENTS, n=1)
        hint = f" (did you mean {near[0]!r}?)" if near else ""
        raise BadSetting(f"no experiment {name!r}{hint}; known: {', '.join(EXPERIMENTS)}, all")
    return cast("Callable[[Effort], Finding]", importlib.import_module(EXPERIMENTS[name]).reproduce)
