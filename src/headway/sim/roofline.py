"""Step times from first principles: a roofline with a smooth maximum and tile steps (COSTMODEL §1–§3)."""

from __future__ import annotations

from headway.sim.cost import CostModel, Overheads
from headway.sim.hardware import HardwareCard
from headway.sim.load import Load
from headway.sim.modelcard import ModelCard
from headway.sim.parallel import Parallel, reduce_costs


class LinearLayer:
    """Seconds of one layer's matrix products on one device.

    (memoryᵖ + arithmeticᵖ)^(1/p): weights are read once, and every token, rounded up to the kernels' tile, is
    multiplied by all of them. The smooth maximum fits profiles twice as well as the plain one.
    """

    def __init__(self, model: ModelCard, hardware: HardwareCard, tensor: int = 1) -> None:
        eff = hardware.efficiency
        self._tile, self._norm = eff.tile, eff.norm
        self._memory_s = model.weight_bytes * model.layer_params / tensor / (eff.memory * hardware.bandwidth)
        self._token_s = 2 * model.layer_params / tensor / (eff.compute * hardware.flops)

    def at(self, num_tokens: int) -> float:
        """Seconds for this many rows."""
        rounded = -(-num_tokens // self._tile) * self._tile
        norm: float = self._norm
        seconds: float = (self._memory_s**norm + (rounded * self._token_s) ** norm) ** (1 / norm)
        return seconds


class Roofline(CostModel):
    """Predicts a step on a device that has only a data sheet.

    Linear layers as in `LinearLayer`; attention reads the KV of decodes and multiplies that of prefills; norms and
    activations move bytes; `tensor` devices add all-reduces, `pipeline` stages a hop. A pipeline's
    `predict` is the time of its slowest stage, the one with the output head.
    """

    def __init__(
        self,
        model: ModelCard,
        hardware: HardwareCard,
        parallel: Parallel,
        overheads: Overheads,
        *,
        block_size: int = 16,
    ) -> None:
        eff, tp = hardware.efficiency, parallel.tensor
        layers = self._layers = -(-model.num_layers // parallel.pipeline)
        self._linear = LinearLayer(model, hardware, tp)
        row_bytes = 2 * (10 * model.hidden + model.num_mlp_matrices * model.ffn / tp)
        self._row_s = layers * eff.elementwise * row_bytes / hardware.bandwidth
        kv_bytes = model.token_kv_size * layers / model.num_layers / tp
        self._kv_s = kv_bytes / (eff.decode_attention * hardware.bandwidth)
        query = model.num_heads * model.head_dim / tp
        self._attend_s = layers * 4 * query / (eff.prefill_attention * hardware.flops)
        self._head_s = model.head_params * model.weight_bytes / tp / (eff.memory * hardware.bandwidth)
        self._drawn_s = 2 * model.head_params / tp / (eff.compute * hardware.flops) + overheads.seq_s
        self._fixed_s = overheads.step_s + layers * overheads.layer_s
        self._swap_s = block_swap_s(model, hardware, parallel, block_size)
        peer = hardware.peer
        if tp > 1:
            costs = reduce_costs(model, tp, peer)
            self._fixed_s += costs.step_s / parallel.pipeline
            self._row_s += costs.token_s / parallel.pipeline
            self._drawn_s += costs.drawn_s
        if parallel.pipeline > 1:
            self._fixed_s += peer.latency_s
            self._row_s += 2.0 * model.hidden / peer.bandwidth

    def predict(self, load: Load) -> float:
        """Seconds of a step; monotone in everything."""
        num = load.num_tokens
        seconds = self._fixed_s + num * self._row_s + load.decode_context * self._kv_s
        if num:
            seconds += self._layers * self._linear.at(num)
        for chunk, start in load.prefills:
            seconds += chunk * (start + 0.5 * chunk) * self._attend_s + (start + chunk) * self._kv_s
        if load.num_drawn:
            seconds += self._head_s + load.num_drawn * self._drawn_s
        return seconds + load.num_swapped * self._swap_s


def block_swap_s(model: ModelCard, hardware: HardwareCard, parallel: Parallel, block_size: int) -> float:
    """Seconds to move one block between device and host: every device moves its share over its own link."""
    return model.token_kv_size * block_size / parallel.num_devices / hardware.host.bandwidth


def kv_blocks(
    model: ModelCard,
    hardware: HardwareCard,
    parallel: Parallel,
    *,
    block_size: int = 16,
    utilization: float = 0.9,
    reserved: float | None = None,
) -> int:
    """Blocks of KV that fit beside weights and activations (COSTMODEL §1.10); below 1 where they do not.

    `reserved` bytes of each device are set aside for activations and the driver's own, else 3 % of it.
    """
    aside = 0.03 * hardware.memory if reserved is None else reserved
    room = (utilization * hardware.memory - aside) * parallel.num_devices - model.weights_size
    return int(room // (model.token_kv_size * block_size))
