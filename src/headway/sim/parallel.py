"""One replica on several devices, and what these send each other."""

from __future__ import annotations

from dataclasses import dataclass

from headway.errors import BadSetting
from headway.sim.hardware import Link
from headway.sim.modelcard import ModelCard


@dataclass(frozen=True, slots=True, kw_only=True)
class Parallel:
    """How one replica is spread: `tensor` devices share each layer, `pipeline` stages share the layers."""

    tensor: int = 1
    pipeline: int = 1

    def __post_init__(self) -> None:
        """There is at least one of each."""
        for name, value in (("tensor", self.tensor), ("pipeline", self.pipeline)):
            if not 1 <= value <= 1024:
                raise BadSetting(f"{name} parallelism is {value}; it must be between 1 and 1024")

    @property
    def num_devices(self) -> int:
        return self.tensor * self.pipeline


@dataclass(frozen=True, slots=True)
class ReduceCosts:
    """Seconds between the devices of a tensor-parallel group: per step, per token, and per drawn token."""

    step_s: float
    token_s: float
    drawn_s: float


def reduce_costs(model: ModelCard, tensor: int, peer: Link) -> ReduceCosts:
    """Two all-reduces per layer and one behind the embedding, of activations at 16 bits; logits are gathered.

    An all-reduce sends 2(t − 1)/t of its bytes over each device's link, a gather (t − 1)/t of its own (COSTMODEL §1).
    """
    num_reduces = 2 * model.num_layers + 1
    share = (tensor - 1) / tensor
    return ReduceCosts(
        step_s=(num_reduces + 1) * peer.latency_s,
        token_s=num_reduces * 2 * share * 2.0 * model.hidden / peer.bandwidth,
        drawn_s=share * 2.0 * model.vocab / peer.bandwidth,
    )
