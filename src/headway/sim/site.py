"""From what a user names (a model, a device, an engine) to what a replica runs on."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

from headway.errors import BadSetting
from headway.sim.cost import CostModel, Overheads
from headway.sim.fitted import Calibration, read_fitted
from headway.sim.hardware import HardwareCard
from headway.sim.modelcard import ModelCard
from headway.sim.parallel import Parallel
from headway.sim.plant import Plant
from headway.sim.profile import Profiled, read_profile
from headway.sim.roofline import Roofline, block_swap_s, kv_blocks
from headway.sim.vidur import read_vidur


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """A model on devices, under an engine.

    Step times come from `fitted` (a calibration file), `profile` (a prefix of kernel profiles) or `vidur` (a folder
    prefix of vidur's tables) where one is given, else from the roofline. `num_blocks` None is what fits in the
    devices' memory at `utilization`; `host_memory` bytes hold swapped blocks, None as many as are wanted.
    """

    model: ModelCard
    hardware: HardwareCard
    parallel: Parallel = field(default_factory=Parallel)
    overheads: Overheads = field(default_factory=Overheads)
    profile: str | None = None
    vidur: str | None = None
    fitted: Path | None = None
    block_size: int = 16
    num_blocks: int | None = None
    utilization: float = 0.9
    host_memory: float | None = None
    prefix_cache: str = "hashed"
    context: int | None = None

    def __post_init__(self) -> None:
        """At most one source of step times, and a pipeline only where its stages can be told apart."""
        sources = [name for name in ("profile", "vidur", "fitted") if getattr(self, name) is not None]
        if len(sources) > 1:
            raise BadSetting(f"{' and '.join(sources)} both give step times; name one of them")
        if sources and self.parallel.pipeline > 1:
            raise BadSetting(f"{sources[0]} gives the time of all layers; a pipeline needs the roofline")
        tensor, num_heads = self.parallel.tensor, self.model.num_heads
        if num_heads % tensor:
            raise BadSetting(
                f"tensor parallelism is {tensor}, but {self.model.name} has {num_heads} attention heads, which "
                f"{tensor} devices cannot share evenly; it must divide {num_heads}"
            )
        if not 0.05 <= self.utilization <= 1.0:
            raise BadSetting(f"memory utilization is {self.utilization}; it must be between 0.05 and 1")
        if not 1 <= self.block_size <= 4096:
            raise BadSetting(f"block_size is {self.block_size}; it must be between 1 and 4096")

    def plant(self) -> Plant:
        """What each replica runs on. Raises `BadSetting` for unreadable files, or when no KV fits."""
        blocks = self.num_blocks
        if blocks is None:
            blocks = kv_blocks(
                self.model, self.hardware, self.parallel, block_size=self.block_size, utilization=self.utilization
            )
            if blocks < 1:
                raise BadSetting(
                    f"{self.model.name} takes {self.model.weights_size / 1e9:.0f} GB; {self.parallel.num_devices} × "
                    f"{self.hardware.name} leave no room for KV: take a smaller model, or more devices (tensor or "
                    "pipeline parallel)"
                )
        block_size = self.model.token_kv_size * self.block_size
        return Plant(
            cost=self.cost(),
            num_blocks=blocks,
            block_size=self.block_size,
            num_host_blocks=None if self.host_memory is None else int(self.host_memory // block_size),
            prefix_cache=self.prefix_cache,
            num_stages=self.parallel.pipeline,
            looks_ahead=self.overheads.looks_ahead,
            context=self.context or self.model.context,
        )

    def cost(self) -> CostModel:
        """The cost model of one step."""
        swap_s = block_swap_s(self.model, self.hardware, self.parallel, self.block_size)
        tensor, peer = self.parallel.tensor, self.hardware.peer
        if self.fitted is not None:
            fitted = read_fitted(self.fitted)
            return fitted if fitted.swap_s else replace(fitted, swap_s=swap_s)
        if self.profile is None and self.vidur is None:
            return Roofline(self.model, self.hardware, self.parallel, self.overheads, block_size=self.block_size)
        if self.profile is not None:
            profile = read_profile(self.profile, tensor)
        else:
            profile = read_vidur(str(self.vidur), tensor)
        return Profiled(
            profile, self.model, self.overheads, tensor=tensor, peer=peer if tensor > 1 else None, block_swap_s=swap_s
        )


def calibrated_plant(
    calibration: Calibration,
    *,
    num_blocks: int | None = None,
    block_size: int | None = None,
    num_host_blocks: int | None = None,
    prefix_cache: str = "hashed",
    context: int | None = None,
) -> Plant:
    """The engine that was calibrated, as a replica; what is given goes before its own sizes. Raises `BadSetting`."""
    own = calibration.engine
    if missing := [name for name in ("num_blocks", "block_size", "max_model_len") if name not in own]:
        raise BadSetting(f"{calibration.origin} does not say {missing[0]} of its engine; run `headway calibrate` again")
    size = block_size or own["block_size"]
    return Plant(
        cost=calibration.model,
        num_blocks=num_blocks if num_blocks is not None else own["num_blocks"] * own["block_size"] // size,
        block_size=size,
        num_host_blocks=own.get("num_host_blocks", 0) if num_host_blocks is None else num_host_blocks,
        prefix_cache=prefix_cache,
        context=context or own["max_model_len"],
    )
