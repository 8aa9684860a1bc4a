"""The whole procedure: batches on the executor, a live run, one fit over both."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from headway.engine import Engine, with_policy
from headway.errors import BadSetting
from headway.interruptible import run_interruptible
from headway.sim.calibration.design import design
from headway.sim.calibration.fit import Fit, fit_steps, quantile
from headway.sim.calibration.live import observe_live
from headway.sim.calibration.probing import Progress, probe_executor, swap_seconds
from headway.sim.fitted import Calibration

LIVE_POLICY = "sarathi_serve"
"""Mixed steps of every size up to its budget: the policy whose steps teach most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """How long to measure: `probe_s` seconds of designed batches, `live_s` of the engine's own steps.

    A step of `most_tokens` is the largest that is measured; the curve goes on straight behind it.
    """

    probe_s: float = 40.0
    live_s: float = 30.0
    most_tokens: int = 1024


def calibrate(
    engine: Engine, *, effort: Effort, machine: Mapping[str, object], on_progress: Progress
) -> tuple[Calibration, Fit]:
    """Measure an idle engine and fit its step times. Its KV cache is overwritten; its executor stays open.

    `machine` is told on in the calibration. Raises `BadSetting` where the engine is too small to be measured.
    """
    executor, limits = engine.core.executor, engine.limits
    probes = design(
        num_blocks=limits.num_blocks,
        block_size=limits.block_size,
        context=limits.max_model_len,
        most_tokens=effort.most_tokens,
    )
    if len(probes) < 8:
        raise BadSetting(
            f"a KV cache of {limits.num_blocks} blocks and a context of {limits.max_model_len} tokens leave only "
            f"{len(probes)} batches to measure; give the engine more memory"
        )
    observations = probe_executor(executor, probes, engine.clock, seconds=effort.probe_s, on_progress=on_progress)
    swap_s = swap_seconds(executor, engine.clock)
    live = with_policy(engine, replace(engine.config, policy=LIVE_POLICY, policy_settings={}, **_PLAIN))
    observations += run_interruptible(observe_live(live, seconds=effort.live_s, on_progress=on_progress))
    fit = fit_steps(observations, swap_s)
    errors = sorted([*fit.probe_errors, *fit.live_errors])
    calibration = Calibration(
        model=fit.model,
        num_steps=len(observations),
        median_error=quantile(errors, 0.5),
        p95_error=quantile(errors, 0.95),
        about={"machine": dict(machine), "model": engine.name, **_compute(engine)},
        engine={
            "num_blocks": limits.num_blocks,
            "block_size": limits.block_size,
            "num_host_blocks": limits.num_host_blocks,
            "max_model_len": limits.max_model_len,
            "token_bytes": limits.kv_bytes // limits.num_kv_tokens,
        },
    )
    return calibration, fit


_PLAIN: dict[str, Any] = {
    "long_prefill_token_threshold": 0,
    "max_num_prefill_tokens": 0,
    "itl_target_ms": 0.0,
    "kv_cache_utilization_limit": 1.0,
    "watermark": 0.0,
    "prefix_cache": "none",
}
"""Engine-wide limits that the policy of the live run does not know, off."""


def _compute(engine: Engine) -> dict[str, object]:
    compute = engine.compute
    return {
        "executor": engine.config.executor,
        "kernels": compute.kernels,
        "weights": compute.weights,
        "kv_dtype": compute.kv_dtype,
        "threads": compute.threads,
    }
