"""The search itself, with what a terminal shows of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headway.cli import calibrating, calibrations

if TYPE_CHECKING:
    from headway.engine import Engine
    from headway.sim import Calibration, Plant
    from headway.tune import Outcome, SloTable, Traffic
    from headway.workload import Workload


def known_calibration(given: Mapping[str, Any]) -> Calibration | None:
    """The calibration that the user named. Raises `BadSetting`."""
    name = given["calibration"]
    if name is None:
        return None
    return calibrations.named(name) if name == calibrations.THIS else calibrations.read(Path(name))


def calibration_of(engine: Engine, known: Calibration | None, given: Mapping[str, Any]) -> Calibration:
    """The known one, which must be of this engine, else one made now. Raises `BadSetting`."""
    if known is None:
        return calibrating.measure(engine, given["calibrate_seconds"])[0]
    calibrations.check_same(known, engine)
    return known


def needs_engine(known: Calibration | None, given: Mapping[str, Any]) -> bool:
    """Whether a model must be loaded: to be measured, or to run live."""
    return known is None or not given["simulate_only"]


def search(
    traffic: Traffic,
    slo: SloTable,
    calibration: Calibration,
    given: Mapping[str, Any],
    *,
    engine: Engine | None = None,
    workload: Workload | None = None,
) -> Outcome:
    """All five stages. Without an engine, or with --simulate-only, in virtual time alone."""
    from headway.cli.bench_screen import Screen
    from headway.cli.summary import LoadingBar
    from headway.tune import QUICK_BUDGETS, QUICK_CONCURRENCY, Effort, Lab, tune
    from headway.tune.verify import LiveRuns

    lab = Lab(_plant(calibration, engine, given), slo)
    effort = Effort(num_verified=given["verify"])
    if given["quick"]:
        effort = replace(effort, num_finalists=2, concurrency=QUICK_CONCURRENCY, budgets=QUICK_BUDGETS)
    with LoadingBar() as bar, Screen() as screen:
        verify = None
        if engine is not None and workload is not None and not given["simulate_only"]:
            calls = calibrations.prompts_of(workload, engine)
            verify = LiveRuns(engine, traffic, slo, calls=calls, on_progress=screen.show)
        return tune(lab, traffic, policy=given["policy"], effort=effort, on_progress=bar.show, verify=verify)


def _plant(calibration: Calibration, engine: Engine | None, given: Mapping[str, Any]) -> Plant:
    from headway.sim import calibrated_plant

    if engine is None:
        return calibrated_plant(
            calibration,
            num_blocks=given["num_blocks"],
            prefix_cache=given["prefix_cache"],
            context=given["max_model_len"],
        )
    limits = engine.limits
    return calibrated_plant(
        calibration,
        num_blocks=limits.num_blocks,
        block_size=limits.block_size,
        num_host_blocks=limits.num_host_blocks,
        prefix_cache=given["prefix_cache"],
        context=limits.max_model_len,
    )
