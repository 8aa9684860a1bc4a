"""Step times looked up in profiles of an engine's real kernels."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from headway.sim.cost import CostModel, Overheads
from headway.sim.curves import Curve, Grid, on_doubling_axes
from headway.sim.hardware import Link
from headway.sim.load import Load
from headway.sim.modelcard import ModelCard
from headway.sim.parallel import reduce_costs
from headway.sim.tables import read_rows

_ONCE = ("embedding", "final_layernorm")
_TWICE = ("layernorm",)
"""Kernels that run once per step, and those that run twice in a layer; all others run once in each layer."""


class Attention(Protocol):
    """Attention of one layer."""

    def at(self, point: tuple[float, ...]) -> float:
        """Seconds for (prefill chunk, KV before it, decodes, KV of each decode)."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelProfile:
    """Kernel times of one model on one device, in seconds.

    `layer` and `once` are by tokens: everything dense in one layer, and what runs once per step. `attention` is of one
    layer by (prefill chunk, KV before it, decodes, KV of each decode). `drawn` is by sequences: output head, sampler.
    """

    layer: Curve
    once: Curve
    attention: Attention
    drawn: Curve


def read_profile(prefix: str, tensor: int = 1) -> KernelProfile:
    """Read `PREFIX_tp{N}_{attention,dense,per_sequence}.csv`, times in microseconds.

    Raises `BadSetting` for a missing file, a missing column or a broken row, with its number.
    """
    where = f"{prefix}_tp{tensor}_"
    dense: dict[str, dict[int, float]] = {}
    for layer, count, micros in _kernels(Path(f"{where}dense.csv"), "tokens"):
        dense.setdefault(layer, {})[int(count)] = float(micros) * 1e-6
    drawn: dict[str, dict[int, float]] = {}
    for layer, count, micros in _kernels(Path(f"{where}per_sequence.csv"), "sequences"):
        drawn.setdefault(layer, {})[int(count)] = float(micros) * 1e-6
    columns = ("prefill_chunk", "kv_prefill", "n_decode", "kv_decode", "time_us")
    attention: dict[tuple[int, ...], float] = {
        (int(chunk), int(before), int(num), int(each)): float(micros) * 1e-6
        for chunk, before, num, each, micros in read_rows(Path(f"{where}attention.csv"), columns, whole=columns[:-1])
    }
    return KernelProfile(
        layer=_total(dense, lambda name: 0 if name in _ONCE else 2 if name in _TWICE else 1),
        once=_total(dense, lambda name: int(name in _ONCE)),
        attention=Grid(on_doubling_axes(attention, axes=(0, 1, 3))),
        drawn=_total(drawn, lambda _: 1),
    )


class Profiled(CostModel):
    """Predicts a step from a kernel profile.

    A kernel that attends for prefills and decodes together is slower than the two apart: the decodes' share is what
    the grid adds to a prefill alone, taken at the longest chunk of the step. Prefills of one step share one launch.
    `peer` prices what tensor parallelism sends between devices, which kernel profiles leave out.
    """

    def __init__(
        self,
        profile: KernelProfile,
        model: ModelCard,
        overheads: Overheads,
        *,
        tensor: int = 1,
        peer: Link | None = None,
        block_swap_s: float = 0.0,
    ) -> None:
        self._profile = profile
        self._num_layers = model.num_layers
        self._fixed_s = overheads.step_s + model.num_layers * overheads.layer_s
        self._seq_s = overheads.seq_s
        self._swap_s = block_swap_s
        self._token_reduce_s = 0.0
        if tensor > 1:
            assert peer is not None, "tensor parallelism needs a link between the devices"
            costs = reduce_costs(model, tensor, peer)
            self._fixed_s += costs.step_s
            self._token_reduce_s = costs.token_s
            self._seq_s += costs.drawn_s
        self._launch_s = profile.attention.at((16, 0, 0, 0))
        self._dense: dict[int, float] = {}

    def predict(self, load: Load) -> float:
        """Seconds of a step."""
        seconds = self._fixed_s + self._num_layers * self._attention(load) + load.num_swapped * self._swap_s
        if load.num_tokens:
            seconds += self._dense_s(load.num_tokens)
        if load.num_drawn:
            seconds += self._profile.drawn.at(load.num_drawn) + load.num_drawn * self._seq_s
        return seconds

    def _dense_s(self, num_tokens: int) -> float:
        """All that depends on the number of rows alone; few numbers occur, so each is looked up once."""
        seconds = self._dense.get(num_tokens)
        if seconds is None:
            profile = self._profile
            seconds = self._num_layers * profile.layer.at(num_tokens) + profile.once.at(num_tokens)
            seconds += num_tokens * self._token_reduce_s
            self._dense[num_tokens] = seconds
        return seconds

    def _attention(self, load: Load) -> float:
        at = self._profile.attention.at
        num = load.num_decodes
        each = load.decode_context / num if num else 0.0
        if not load.prefills:
            return at((0, 0, num, each)) if num else 0.0
        alone = [at((chunk, start, 0, 0)) for chunk, start in load.prefills]
        together = self._launch_s + sum(max(0.0, seconds - self._launch_s) for seconds in alone)
        if num:
            chunk, start = max(load.prefills)
            together += at((chunk, start, num, each)) - at((chunk, start, 0, 0))
        return together


def _kernels(path: Path, count: str) -> Iterator[list[str]]:
    return read_rows(path, ("layer", count, "time_us"), words=("layer",), whole=(count,))


def _total(kernels: Mapping[str, Mapping[int, float]], times: Callable[[str], int]) -> Curve:
    """The kernels' times together, each counted `times` its name."""
    counts = sorted({count for samples in kernels.values() for count in samples})
    curves = [(times(name), Curve(samples)) for name, samples in kernels.items() if times(name)]
    return Curve({count: sum(num * curve.at(count) for num, curve in curves) for count in counts})
