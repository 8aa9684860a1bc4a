"""The roofline's matrix products against profiles of real kernels."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from headway.errors import BadSetting
from headway.sim import HardwareCard, LinearLayer, ModelCard, hardware_card, model_card
from headway.sim.tables import read_rows
from headway.sim.vidur import LINEAR

OPERATOR_BOUNDS: Mapping[str, float] = {"A100-80": 0.06, "A40": 0.06, "H100": 0.08}
"""Largest mean absolute relative error allowed, by hardware card."""

MOST_TOKENS = 4096
LAUNCH_S = 30e-6
"""Launches of one layer, as in the presets of engines that replay graphs."""

_SIZES = ("7b", "70b")


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorCheck:
    """One device: rows compared, and the mean absolute relative error over all of them, and by model."""

    hardware: str
    num_rows: int
    error: float
    bound: float
    by_model: Mapping[str, float]

    @property
    def is_within(self) -> bool:
        """Whether the error keeps the bound."""
        return self.error <= self.bound


def check_operators(folder: Path) -> Sequence[OperatorCheck]:
    """Compare every `vidur_DEVICE_…_mlp.csv` of a 7B or 70B model in a folder, all tensor-parallel degrees.

    Raises `BadSetting` when the folder has none, or for a broken file.
    """
    errors: dict[str, dict[str, list[float]]] = {}
    for path in sorted(folder.glob("vidur_*_mlp.csv")):
        found = re.fullmatch(r"vidur_([^_]+)_(.+)_mlp\.csv", path.name)
        if found is None or not any(f"-{size}-" in f"{found[2].lower()}-" for size in _SIZES):
            continue
        hardware, model = hardware_card(found[1]), model_card(found[2].rpartition("_")[2])
        errors.setdefault(hardware.name, {})[model.name] = list(_errors(path, hardware, model))
    if not errors:
        raise BadSetting(
            f"{folder} has no vidur_DEVICE_MODEL_mlp.csv of a 7B or 70B model; name their folder with --profiles"
        )
    return [_check(name, found) for name, found in errors.items()]


def _check(name: str, found: Mapping[str, Sequence[float]]) -> OperatorCheck:
    every = [error for errors in found.values() for error in errors]
    return OperatorCheck(
        hardware=name,
        num_rows=len(every),
        error=_mean(every),
        bound=OPERATOR_BOUNDS.get(name, 0.08),
        by_model={model: _mean(errors) for model, errors in found.items()},
    )


def _errors(path: Path, hardware: HardwareCard, model: ModelCard) -> Iterable[float]:
    """Of each row's four matrix products together."""
    layers: dict[int, LinearLayer] = {}
    for tensor, num_tokens, *products in read_rows(
        path, ("tp", "num_tokens", *LINEAR), whole=("tp", "num_tokens"), blank=LINEAR
    ):
        measured_s = 1e-3 * sum(float(cell or 0) for cell in products)
        count = int(num_tokens)
        if not measured_s or count > MOST_TOKENS:
            continue
        layer = layers.setdefault(int(tensor), LinearLayer(model, hardware, int(tensor)))
        yield abs((layer.at(count) + LAUNCH_S) / measured_s - 1.0)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
