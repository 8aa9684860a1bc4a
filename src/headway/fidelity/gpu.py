"""A recorded run of vLLM on a GPU against the same requests in virtual time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from headway.errors import BadSetting
from headway.fidelity.measured import MeasuredRun, device_of_profile, model_of_profile, read_run
from headway.fidelity.outcome import Deviation, deviations
from headway.fidelity.sharing import shared_blocks
from headway.report import RunRecord
from headway.sim import (
    HardwareCard,
    ModelCard,
    Parallel,
    Plan,
    Plant,
    Pool,
    Site,
    hardware_card,
    kv_blocks,
    model_card,
    overheads,
    simulate,
)

LEVELS = (50.0, 90.0, 99.0)
ENGINE = "vllm-0.19"
_NULL_BLOCKS = 1
"""vLLM keeps one block for padding."""
_RESERVED = 1.236e9
"""Bytes that vLLM 0.19 keeps of each device for activations and the driver.

What the run on the RTX 4090 left of its 0.9 beside weights and KV; it does not grow with the device.
"""

_PLAIN: Mapping[str, Sequence[object]] = {
    "pipeline_parallel_size": (None, 1),
    "kv_cache_dtype": (None, "auto", "bfloat16", "float16"),
    "quantization": (None,),
    "speculative_config": (None,),
    "long_prefill_token_threshold": (None, 0),
    "enable_expert_parallel": (None, False),
}
"""Settings of an engine that change its times and are simulated only as these values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuCheck:
    """The comparison: every figure, the bound on each, what was simulated, and what speaks against believing it."""

    rows: Sequence[Deviation]
    bound: float
    settings: dict[str, object]
    num_preemptions: int
    notes: Sequence[str] = ()

    @property
    def is_within(self) -> bool:
        """Whether every figure keeps the bound."""
        return all(abs(row.error) <= self.bound for row in self.rows)


def check_gpu(
    profile: str, run: str, *, model: str | None = None, hardware: str | None = None, bound: float = 0.03
) -> GpuCheck:
    """Simulate a run's requests with its settings on a kernel profile, and compare TTFT, TPOT and latency.

    `profile` and `run` are prefixes of files. Block size, blocks and prefix caching are what the run reported, else
    16, what fits in 0.9 of the device's memory beside weights and what vLLM reserves, and on.
    Raises `BadSetting` for unreadable files or unknown cards.
    """
    measured = read_run(run)
    site = _site(measured, profile, model or measured.model, hardware)
    plant = site.plant()
    plant = replace(plant, num_blocks=plant.num_blocks - _NULL_BLOCKS)
    record, num_shared = _simulated(measured, plant)
    rows = [
        *deviations("TTFT", (request.ttft_s for request in measured.requests), _times(record, "ttft_s"), LEVELS),
        *deviations(
            "TPOT",
            (request.tpot_s for request in measured.requests if request.tpot_s is not None),
            _times(record, "tpot_s"),
            LEVELS,
        ),
        *deviations("latency", (request.latency_s for request in measured.requests), _times(record, "e2e_s"), LEVELS),
    ]
    return GpuCheck(
        rows=rows,
        bound=bound,
        settings=_settings(measured, site, plant, num_shared),
        num_preemptions=int(record.server["num_preemptions"]),
        notes=[*_notes(measured, site, profile, run), *_refused(record)],
    )


def _settings(measured: MeasuredRun, site: Site, plant: Plant, num_shared: int) -> dict[str, object]:
    """What was simulated."""
    return {
        "model": site.model.name,
        "hardware": site.hardware.name,
        "tensor_parallel": site.parallel.tensor,
        "requests": len(measured.requests),
        "num_blocks": plant.num_blocks,
        "block_size": plant.block_size,
        "shared_blocks": num_shared,
        "prefix_cache": plant.prefix_cache,
        "max_num_batched_tokens": _budget(measured, plant),
        "max_num_seqs": measured.setting("max_num_seqs", 256),
        "host_ms_per_step": site.overheads.step_s * 1e3,
    }


def _notes(measured: MeasuredRun, site: Site, profile: str, run: str) -> list[str]:
    """Where files are missing or do not belong together."""
    notes = []
    num_rows, expected = len(measured.requests), measured.num_expected
    if expected not in (None, num_rows):
        notes.append(
            f"{run}_requests.csv has {num_rows} requests and {measured.meta_file} names {expected}: "
            "the simulated load is not the run's"
        )
    if not measured.ticks:
        notes.append(
            f"{run}_timeseries.csv is absent or empty: blocks that prompts shared cannot be told, which matters where "
            "memory is short"
        )
    for profiled, ran, card in (
        (device_of_profile(profile), site.hardware.name, hardware_card),
        (model_of_profile(profile), site.model.name, model_card),
    ):
        if profiled is not None and _card_name(profiled, card) not in (None, ran):
            notes.append(f"the profile {profile} is of {profiled}, the run of {ran}: it tells other times")
    for name, plain in _PLAIN.items():
        if (value := measured.engine.get(name)) not in plain:
            notes.append(f"{measured.meta_file}: {name} is {value!r}, which is not simulated")
    return notes


def _refused(record: RunRecord) -> list[str]:
    """Requests that the simulation could not serve, though the run did."""
    num_refused = sum(request.e2e_s is None for request in record.requests)
    if not num_refused:
        return []
    note = (
        f"{num_refused} of {len(record.requests)} requests do not fit max_model_len, budget or memory as given, and "
        "are only among the measured: the run cannot have had these settings"
    )
    return [note]


def _card_name(name: str, card: Callable[[str], HardwareCard | ModelCard]) -> str | None:
    """What the card of a device or a model is called; None where there is none."""
    try:
        return card(name).name
    except BadSetting:
        return None


def _site(measured: MeasuredRun, profile: str, model: str, hardware: str | None) -> Site:
    card = model_card(model)
    device = hardware_card(hardware or measured.device or device_of_profile(profile))
    parallel = Parallel(tensor=measured.setting("tensor_parallel_size", 1))
    block_size = measured.memory("block_size", 16)
    share = measured.kv_cache.get("gpu_memory_utilization") or measured.engine.get("gpu_memory_utilization")
    utilization = float(share) if isinstance(share, int | float) else 0.9
    blocks = kv_blocks(card, device, parallel, block_size=block_size, utilization=utilization, reserved=_RESERVED)
    num_blocks = measured.memory("num_gpu_blocks", max(_NULL_BLOCKS, blocks))
    if num_blocks <= _NULL_BLOCKS and measured.kv_cache.get("num_gpu_blocks") is not None:
        raise BadSetting(
            f"{measured.meta_file}: kv_cache.num_gpu_blocks is {num_blocks}; it must be at least {_NULL_BLOCKS + 1}, "
            f"as {_NULL_BLOCKS} is vLLM's padding"
        )
    if num_blocks <= _NULL_BLOCKS:
        raise BadSetting(
            f"{measured.meta_file} has no kv_cache.num_gpu_blocks, and the weights of {card.name} leave no room for KV "
            f"in {utilization:g} of {parallel.tensor} x {device.name}: is that model, device and tensor_parallel_size "
            "what the run had?"
        )
    asked = measured.switch("enable_prefix_caching")
    is_caching = measured.switch("enable_prefix_caching", of=measured.kv_cache, default=asked)
    return Site(
        model=card,
        hardware=device,
        parallel=parallel,
        overheads=overheads(ENGINE),
        profile=profile,
        block_size=block_size,
        num_blocks=num_blocks,
        prefix_cache="hashed" if is_caching else "none",
        context=measured.setting("max_model_len", card.context),
    )


def _simulated(measured: MeasuredRun, plant: Plant) -> tuple[RunRecord, int]:
    """The run, and the blocks that its prompts shared: they make a difference only where memory was short.

    Raises `BadSetting` where no request fits.
    """
    plan = Plan(
        policy="vllm",
        settings={"whole_sequence": "true"},
        defaults={
            "max_num_batched_tokens": _budget(measured, plant),
            "max_num_seqs": measured.setting("max_num_seqs", 256),
            "chunked": measured.switch("enable_chunked_prefill"),
        },
    )
    num_replicas = measured.setting("data_parallel_size", 1)
    record = _serve(measured, Pool(plant=plant, plan=plan, num_replicas=num_replicas))
    if not _times(record, "e2e_s"):
        raise BadSetting(
            f"{measured.meta_file}: not one of {len(measured.requests)} requests fits {plant.num_blocks} blocks of "
            f"{plant.block_size} tokens and the run's max_model_len; the run cannot have had these"
        )
    if plant.prefix_cache == "none" or not record.server["num_preemptions"]:
        return record, 0
    num_shared = shared_blocks(measured.ticks, record.steps, plant.num_blocks)
    if num_shared:
        roomier = replace(plant, num_blocks=plant.num_blocks + num_shared)
        record = _serve(measured, Pool(plant=roomier, plan=plan, num_replicas=num_replicas))
    return record, num_shared


def _budget(measured: MeasuredRun, plant: Plant) -> int:
    """Tokens of a step, by default 2048, or the longest prompt where prompts are not cut: vLLM asks for that much."""
    longest = 0 if measured.switch("enable_chunked_prefill") else plant.context or 0
    return measured.setting("max_num_batched_tokens", max(2048, longest))


def _serve(measured: MeasuredRun, pool: Pool) -> RunRecord:
    return simulate((request.item() for request in measured.requests), pool)


def _times(record: RunRecord, name: str) -> list[float]:
    values = (getattr(request, name) for request in record.requests)
    return [value for value in values if value is not None]
