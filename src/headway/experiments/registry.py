"""Experiments by name. A module is imported when its experiment is asked for."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Callable
from typing import cast

from headway.errors import BadSetting
from headway.experiments.finding import Finding

EXPERIMENTS = {
    "static": "headway.experiments.request_level",
    "orca": "headway.experiments.orca",
    "vllm": "headway.experiments.paged",
    "sarathi-serve": "headway.experiments.stall_free",
    "vtc": "headway.experiments.fairness",
}
"""In the order of the document. Each module has a function `reproduce() -> Finding`."""


def experiment(name: str) -> Callable[[], Finding]:
    """What runs an experiment. Raises `BadSetting` naming the known ones."""
    if name not in EXPERIMENTS:
        near = difflib.get_close_matches(name, EXPERIMENTS, n=1)
        hint = f" (did you mean {near[0]!r}?)" if near else ""
        raise BadSetting(f"no experiment {name!r}{hint}; known: {', '.join(EXPERIMENTS)}, all")
    return cast("Callable[[], Finding]", importlib.import_module(EXPERIMENTS[name]).reproduce)
