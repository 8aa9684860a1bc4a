"""What `headway fidelity engine` says."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headway.fidelity import EngineCheck, PolicyCheck
    from headway.sim import Calibration


def engine_json(check: EngineCheck, calibration: Calibration) -> dict[str, Any]:
    """The comparison, ready for JSON."""
    return {
        "check": "engine",
        "within": check.is_within,
        "complete": check.is_complete,
        "load": check.trial.load,
        "num_requests": check.trial.requests.num_requests,
        "repeats": check.trial.repeats,
        "calibration": {
            "about": dict(calibration.about),
            "median_error": calibration.median_error,
            "p95_error": calibration.p95_error,
        },
        "policies": [_policy_json(check, one) for one in check.checks],
    }


def _policy_json(check: EngineCheck, one: PolicyCheck) -> dict[str, Any]:
    figures = [
        {**asdict(row), "error": row.error, "bound": check.bound(row), "error_at_calibrated_speed": unpaced.error}
        for row, unpaced in zip(one.rows, one.unpaced, strict=True)
    ]
    steps = {"median": one.step_median, "mean": one.step_mean}
    replayed = {"num_steps": one.num_steps, "num_differences": one.num_differences}
    return {
        "policy": one.policy,
        "requests_per_second": one.rate,
        "num_runs": one.num_runs,
        "figures": figures,
        "slowness": one.slowness,
        "speed": {"reading": one.reading, "computing": one.computing, "plausible": one.is_plausible},
        "steps": steps,
        "replay": replayed,
    }


def engine_text(check: EngineCheck) -> str:
    """A table for each policy, what the bounds do not see, and the verdict."""
    parts = [*(_table(check, one) for one in check.checks), *_remarks(check)]
    verdict = "within all bounds" if check.is_within else "beyond a bound"
    if not check.is_complete:
        verdict = "interrupted: what is here was measured until then"
    trial = check.trial
    parts.append(
        f"{verdict}; {trial.requests.num_requests} requests at {trial.load:.0%} of what each policy sustains, "
        f"median of {trial.repeats}"
    )
    return "\n\n".join(parts)


def _table(check: EngineCheck, one: PolicyCheck) -> str:
    from headway.report import Grid

    rows = [
        (
            f"{row.metric} {row.figure}",
            row.measured,
            row.simulated,
            f"{100 * row.error:+.1f} %",
            f"{100 * check.bound(row):g} %",
            f"{100 * unpaced.error:+.1f} %",
            row.size,
        )
        for row, unpaced in zip(one.rows, one.unpaced, strict=True)
    ]
    replayed = f"{one.num_differences} differ" if one.num_differences else "all the same"
    return Grid(
        title=f"{one.policy}, {one.rate:.2f} requests/s, {one.num_runs} runs",
        columns=("figure", "live", "simulated", "error", "bound", "at calibrated speed", "samples"),
        rows=rows,
        note=f"decided again with the recorded times: {one.num_steps} steps, {replayed}; "
        f"steps took {one.slowness:.2f} times what they took in the calibration,\n"
        f"reading {one.reading:.2f} and computing {one.computing:.2f} times (medians over the run);\n"
        f"those that this was not taken from took {one.step_median:.2f} times what was then predicted, "
        f"{one.step_mean:.2f} in the mean",
    ).to_text()


def _remarks(check: EngineCheck) -> list[str]:
    """What the bounds do not see: a speed so far from the calibration's that its step times may be wrong."""
    from headway.fidelity import PLAUSIBLE

    odd = [one.policy for one in check.checks if not one.is_plausible]
    if not odd:
        return []
    low, high = PLAUSIBLE
    remark = (
        f"The times found under {', '.join(odd)} are not {low:g} to {high:g} times those calibrated: the machine has "
        "changed, or the calibration is wrong, and the bounds, kept at the speed found, cannot tell which. Go by "
        "the column at calibrated speed, and calibrate again."
    )
    return [remark]
