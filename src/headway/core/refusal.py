"""A request that was turned away at the door, before the engine had heard of it."""

from __future__ import annotations

from dataclasses import dataclass

from headway.core.request import Cause


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """What was asked for, when, by whom, and why it was refused. `at_s` is on the engine's clock."""

    at_s: float
    num_prompt: int
    max_output: int
    cause: Cause
    tenant: str = ""
    priority: int = 0
    choices: int = 1
