"""`headway fidelity`: the simulator against measurements, with a bound on every figure."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headway.cli.fidelity_engine import engine
from headway.cli.flags import Json
from headway.cli.nested import Face
from headway.cli.output import print_json, results

if TYPE_CHECKING:
    from headway.fidelity import GpuCheck, OperatorCheck

FAILED = 1

Profile = Annotated[
    str, typer.Option(metavar="PREFIX", help="Kernel profiles: PREFIX_tp{N}_{attention,dense,per_sequence}.csv.")
]
Run = Annotated[
    str, typer.Option(metavar="PREFIX", help="A recorded run: PREFIX_{requests,timeseries}.csv and PREFIX_meta.json.")
]
ModelCard = Annotated[
    str | None,
    typer.Option("--model-card", help="A model card or config.json.", show_default="the meta file's model"),
]
Hardware = Annotated[str | None, typer.Option(help="A hardware card.", show_default="the meta file's device")]
Bound = Annotated[float, typer.Option(help="Largest relative error of any figure.", min=0.0)]
Folder = Annotated[
    Path | None,
    typer.Option(
        "--profiles",
        metavar="FOLDER",
        help="Where vidur_DEVICE_MODEL_mlp.csv files are.",
        show_default="data/gpu in $HEADWAY_SHARED, else in ../shared",
    ),
]


def fidelity_app() -> typer.Typer:
    """The group of checks; each prints its table and ends with status 1 beyond its bound."""
    help_ = "Compare the simulator with measurements."
    app = typer.Typer(name="fidelity", cls=Face, help=help_, no_args_is_help=True)
    app.command()(gpu)
    app.command()(operators)
    app.command()(engine)
    return app


def gpu(
    *,
    profile: Profile,
    run: Run,
    model: ModelCard = None,
    hardware: Hardware = None,
    bound: Bound = 0.03,
    as_json: Json = False,
) -> int:
    """Simulate a recorded run of vLLM and compare TTFT, TPOT and latency."""
    from headway.fidelity import check_gpu

    check = check_gpu(profile, run, model=model, hardware=hardware, bound=bound)
    print_json(_gpu_json(check)) if as_json else results().print(_gpu_text(check), markup=False, soft_wrap=True)
    return 0 if check.is_within else FAILED


def operators(*, profiles: Folder = None, as_json: Json = False) -> int:
    """Compare the roofline's matrix products with profiles of 7B and 70B models."""
    from headway.fidelity import check_operators

    checks = check_operators(profiles or Path(os.environ.get("HEADWAY_SHARED", "../shared"), "data", "gpu"))
    is_within = all(check.is_within for check in checks)
    if as_json:
        rows = [{**asdict(check), "within": check.is_within} for check in checks]
        print_json({"check": "operators", "within": is_within, "devices": rows})
    else:
        results().print(_operators_text(checks), markup=False, soft_wrap=True)
    return 0 if is_within else FAILED


def _gpu_json(check: GpuCheck) -> dict[str, Any]:
    return {
        "check": "gpu",
        "within": check.is_within,
        "bound": check.bound,
        "settings": check.settings,
        "num_preemptions": check.num_preemptions,
        "notes": list(check.notes),
        "figures": [{**asdict(row), "error": row.error} for row in check.rows],
    }


def _gpu_text(check: GpuCheck) -> str:
    from headway.report import Grid

    rows = [
        (f"{row.metric} {row.figure}", row.measured, row.simulated, f"{100 * row.error:+.2f} %") for row in check.rows
    ]
    settings = ", ".join(f"{name} {value}" for name, value in check.settings.items())
    verdict = "within" if check.is_within else "beyond"
    summary = f"{verdict} the bound of {100 * check.bound:g} %; {check.num_preemptions} preemptions; {settings}"
    return Grid(
        title=f"Simulated against measured, {check.rows[0].size} requests",
        columns=("seconds", "measured", "simulated", "error"),
        rows=rows,
        note="\n".join([summary, *(f"! {note}" for note in check.notes)]),
    ).to_text()


def _operators_text(checks: Sequence[OperatorCheck]) -> str:
    from headway.report import Grid

    rows: list[Sequence[str | int | None]] = []
    for check in checks:
        verdict = "within" if check.is_within else "beyond"
        rows.append((check.hardware, check.num_rows, *_percent(check.error, check.bound), verdict))
        rows += [(f"  {model}", None, *_percent(error, check.bound), "") for model, error in check.by_model.items()]
    return Grid(
        title="Matrix products of one layer, roofline against profiles, up to 4,096 tokens",
        columns=("device", "rows", "mean error", "bound", ""),
        rows=rows,
    ).to_text()


def _percent(error: float, bound: float) -> tuple[str, str]:
    return f"{100 * error:.2f} %", f"{100 * bound:g} %"
