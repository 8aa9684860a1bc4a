"""What a replica is made of: the machine it pretends to run on, and the policy that schedules it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from headway.core import Batch
from headway.errors import BadSetting
from headway.sim.cost import CostModel
from headway.sim.load import Load, load_of

MOST_BLOCKS = 10_000_000
"""Blocks of a simulated pool: each takes about 50 bytes here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plant:
    """What one replica runs on. `context` bounds prompt + output; `num_stages` above 1 is a pipeline.

    `cost_at` tells what steps cost that begin at a moment, on a machine that does not keep its speed.
    """

    cost: CostModel
    num_blocks: int
    block_size: int = 16
    num_host_blocks: int | None = None
    prefix_cache: str = "hashed"
    num_stages: int = 1
    looks_ahead: bool = False
    context: int | None = None
    load: Callable[[Batch], Load] = load_of
    cost_at: Callable[[float], CostModel] | None = None

    def __post_init__(self) -> None:
        """A pool that holds nothing serves nobody. Raises `BadSetting`."""
        if self.num_blocks < 1:
            raise BadSetting(f"the model leaves room for {self.num_blocks} KV blocks; add devices or memory")
        if self.num_blocks > MOST_BLOCKS:
            raise BadSetting(f"the KV cache would have {self.num_blocks} blocks; at most {MOST_BLOCKS:,} are simulated")

    def step_times(self, batch: Batch, moment_s: float) -> tuple[float, float]:
        """Seconds of a step that begins then, and those that pass behind it before the next one is planned.

        The second are no part of the step that a policy is told of. Only an engine that was measured tells them apart.
        """
        cost = self.cost if self.cost_at is None else self.cost_at(moment_s)
        load = self.load(batch)
        between_s = cost.between_s(load)
        return cost.predict(load) - between_s, between_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Which policy schedules: its name, `--set` texts, and engine-wide limits for its parameters."""

    policy: str = "vllm"
    settings: Mapping[str, str] = field(default_factory=dict)
    defaults: Mapping[str, object] = field(default_factory=dict)
