"""Which calibration a command means, and whether it is of the engine at hand."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from headway.errors import BadSetting

if TYPE_CHECKING:
    from headway.bench import CallMaker
    from headway.engine import Engine
    from headway.sim import Calibration
    from headway.workload import Workload

THIS = "this"


def default_file() -> Path:
    """Where the last calibration of this machine lies, unless the user said otherwise."""
    from headway.models import cache_folder

    return cache_folder() / "calibration.json"


def read(path: Path) -> Calibration:
    """The calibration in a file. Raises `BadSetting`."""
    from headway.sim import read_calibration

    return read_calibration(path)


def named(hardware: str) -> Calibration | None:
    """The calibration that a `--hardware` names: `this`, or a .json file; None for the name of a card."""
    if hardware == THIS:
        path = default_file()
        if not path.exists():
            raise BadSetting("this machine is not calibrated yet; run `headway calibrate` first")
        return read(path)
    return read(Path(hardware)) if hardware.endswith(".json") else None


def check_same(calibration: Calibration, built: Engine) -> None:
    """Raise `BadSetting` where the calibration is of another model, or of other kernels."""
    compute = built.compute
    own = {"model": built.name, "kernels": compute.kernels, "weights": compute.weights, "threads": compute.threads}
    for name, value in own.items():
        known = calibration.about.get(name)
        if known != value:
            said = f"does not say what {name} it is of" if known is None else f"is of {name} {known}"
            raise BadSetting(f"{calibration.origin} {said}, this engine has {value}; calibrate it")


def prompts_of(workload: Workload, engine: Engine) -> CallMaker:
    """What is sent for the workload's requests, as token ids: its own texts, or made-up ones."""
    from headway.bench import IdCalls
    from headway.cli.bench_options import prompt_maker

    return IdCalls(prompt_maker(workload, engine.tokenizer, {"same_prompts": False}))
