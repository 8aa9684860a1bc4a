"""How a calibration is made for a command, and shown."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headway.engine import Engine
    from headway.sim import Calibration
    from headway.sim.calibration import Fit

_PROBE_SHARE = 0.6


def machine() -> dict[str, object]:
    """Processor and cores, for whoever reads a calibration elsewhere."""
    from headway.cli.collect_env import environment

    cpu = environment()["cpu"]
    return {name: cpu[name] for name in ("model", "architecture", "usable_cpus")}


def measure(engine: Engine, seconds: float, most_tokens: int = 1024) -> tuple[Calibration, Fit]:
    """A calibration, with a bar on the terminal. Raises `BadSetting`."""
    from headway.cli.summary import LoadingBar
    from headway.sim.calibration import Effort, calibrate

    effort = Effort(probe_s=seconds * _PROBE_SHARE, live_s=seconds * (1 - _PROBE_SHARE), most_tokens=most_tokens)
    with LoadingBar() as bar:
        return calibrate(
            engine,
            effort=effort,
            machine=machine(),
            on_progress=lambda stage, done_s, total_s: bar.show(f"measuring {stage}", round(done_s), round(total_s)),
        )


def residuals(fit: Fit) -> dict[str, dict[str, float]]:
    """How far the fit is from what was measured: relative errors."""
    from headway.sim.calibration import quantile

    kinds = {"batches": fit.probe_errors, "live": fit.live_errors}
    return {
        name: {"num_steps": len(errors), "median": quantile(errors, 0.5), "p95": quantile(errors, 0.95)}
        for name, errors in kinds.items()
    }


def text_of(calibration: Calibration, fit: Fit) -> str:
    """Two tables: what a step costs, and how well that describes what was measured."""
    from headway.report import Grid

    model = calibration.model
    costs: list[tuple[str, float | str]] = [
        (f"{num:,} tokens", seconds * 1e3) for num, seconds in model.rows if num in (1, 8, 16, 32, 64, 128, 256, 1024)
    ]
    costs += [
        ("each sequence", model.lane_s * 1e3),
        ("each token drawn", model.drawn_s * 1e3),
        ("1,000 tokens of context, decodes", model.context_s * 1e6),
        ("1,000 × 1,000 pairs, prefills", model.attend_s * 1e9),
        ("1,000 blocks swapped", model.swap_s * 1e6),
        ("host, each step", model.host_s * 1e3),
        ("host, each sequence", model.host_lane_s * 1e3),
    ]
    rows = [
        (name, int(one["num_steps"]), f"{100 * one['median']:.1f} %", f"{100 * one['p95']:.1f} %")
        for name, one in residuals(fit).items()
    ]
    about = calibration.about
    names = ("model", "executor", "kernels", "weights", "kv_dtype", "threads")
    note = ", ".join(f"{name} {about[name]}" for name in names if name in about)
    cost = Grid(title="What a step costs", columns=("part", "ms"), rows=costs, note=note)
    error = Grid(title="Fitted against measured", columns=("steps", "number", "median error", "P95"), rows=rows)
    return f"{cost.to_text()}\n\n{error.to_text()}"
