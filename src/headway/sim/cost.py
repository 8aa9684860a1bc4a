"""What every cost model answers, and what an engine adds to the device's own time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from headway.errors import BadSetting
from headway.sim.load import Load


class CostModel(Protocol):
    """Seconds of a step, from its load alone. Implementations name it as their base."""

    __slots__ = ()

    def predict(self, load: Load) -> float:
        """Seconds that one stage of the device needs for a step: all of it, unless it is a pipeline."""
        ...

    def between_s(self, _load: Load, /) -> float:
        """Seconds of these that pass between the step and the next one, where no policy sees them; 0 if unknown."""
        return 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Overheads:
    """Host time of an engine (COSTMODEL §3): `step_s` each step, `layer_s` each layer, `seq_s` each sequence.

    With `looks_ahead` a step is planned while the one before it runs, as asynchronous schedulers do: what arrives or
    ends during a step is noticed one step later.
    """

    step_s: float = 0.0
    layer_s: float = 0.0
    seq_s: float = 0.0
    looks_ahead: bool = False


OVERHEADS: Mapping[str, Overheads] = {
    "none": Overheads(),
    "ideal": Overheads(step_s=0.5e-3, layer_s=0.03e-3),
    "cuda-graph": Overheads(step_s=2e-3, layer_s=0.03e-3, seq_s=0.01e-3),
    "eager": Overheads(step_s=5e-3, layer_s=0.18e-3, seq_s=0.3e-3),
    "python-server": Overheads(step_s=12e-3, layer_s=0.18e-3, seq_s=0.3e-3),
    "vllm-0.19": Overheads(step_s=0.1e-3, looks_ahead=True),
}
"""By engine. `vllm-0.19` is for profiles of vLLM's own kernels, which have the launches inside."""


def overheads(name: str) -> Overheads:
    """A preset by name. Raises `BadSetting` naming the known ones."""
    if name not in OVERHEADS:
        raise BadSetting(f"no engine overheads {name!r}; known: {', '.join(OVERHEADS)}")
    return OVERHEADS[name]
