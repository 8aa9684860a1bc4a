"""Runs in files: everything that was recorded, to be reported, compared or simulated again later."""

from __future__ import annotations

import csv
import json
import math
from array import array
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, fields
from pathlib import Path
from typing import TextIO, cast

from headway.core import Slo, unreadable
from headway.errors import BadSetting
from headway.report.checking import check_numbers, record_of
from headway.report.metrics import measure
from headway.report.record import Outcome, RequestRecord, RunRecord, StepSample
from headway.report.result_json import plain, result_json

FORMAT = 1

CSV_COLUMNS = (
    *("id", "tenant", "traffic_class", "session", "turn", "outcome", "status", "reason", "num_prompt", "num_output"),
    *("num_expected", "count_source", "num_cached", "num_preemptions", "num_retries", "intended_s", "sent_s"),
    *("connected_s", "scheduled_s", "first_s", "last_s", "closed_s", "lateness_s", "queue_s", "ttft_s", "tpot_s"),
    *("e2e_s", "largest_gap_s", "meets_slo"),
)


def save_run(run: RunRecord, path: Path) -> None:
    """Write the result JSON with the whole record inside. Raises `BadSetting` if the file cannot be written."""
    document = result_json(run, measure(run)) | {"record": plain(run_json(run))}
    with _writing(path) as file:
        json.dump(document, file, allow_nan=False)
        file.write("\n")


def load_run(path: Path) -> RunRecord:
    """The run that `save_run` wrote. Raises `BadSetting` for anything else."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise unreadable(path, error, "result") from error
    except (ValueError, RecursionError) as error:
        raise BadSetting(f"{path} is not JSON: {error}") from error
    record = document.get("record") if isinstance(document, dict) else None
    if not isinstance(record, dict) or record.get("format") != FORMAT:
        raise BadSetting(f"{path} holds no run of this version of headway: it has no record with format {FORMAT}")
    try:
        return run_of(record)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        what = f"{error} is missing" if isinstance(error, KeyError) else error
        raise BadSetting(f"{path}: its record is damaged: {what}") from error


def save_csv(run: RunRecord, path: Path) -> None:
    """One row per request. Seconds; empty where nothing is known. Raises `BadSetting` if it cannot be written."""
    with _writing(path) as file:
        writer = csv.writer(file)
        writer.writerow(CSV_COLUMNS)
        writer.writerows([_cell(request, column) for column in CSV_COLUMNS] for request in run.requests)


def run_json(run: RunRecord) -> dict[str, object]:
    """The record as JSON values. Times in seconds, rounded to the microsecond."""
    own = {part.name: getattr(run, part.name) for part in fields(run) if part.name not in _NESTED}
    return {
        "format": FORMAT,
        **{name: dict(value) if isinstance(value, Mapping) else value for name, value in own.items()},
        "requests": [_request_json(request) for request in run.requests],
        "steps": [list(asdict(step).values()) for step in run.steps],
        "client_lag_s": [round(lag_s, 6) for lag_s in run.client_lag_s],
        "notes": list(run.notes),
    }


def run_of(content: Mapping[str, object]) -> RunRecord:
    """The record that `run_json` described. Raises what a wrong shape raises."""
    known = {part.name for part in fields(RunRecord)} - _NESTED
    own = {name: value for name, value in content.items() if name in known}
    check_numbers("client_lag_s", content["client_lag_s"])
    nested = {
        "requests": [_request_of(entry) for entry in cast("list[dict[str, object]]", content["requests"])],
        "steps": [_step_of(entry) for entry in cast("list[list[object]]", content["steps"])],
        "client_lag_s": content["client_lag_s"],
        "notes": [str(note) for note in cast("list[object]", content["notes"])],
    }
    return record_of(RunRecord, own | nested)


_NESTED = {"requests", "steps", "client_lag_s", "notes"}


def _request_json(request: RequestRecord) -> dict[str, object]:
    entry: dict[str, object] = {}
    for part in fields(request):
        value = getattr(request, part.name)
        if value != part.default:
            entry[part.name] = round(value, 6) if isinstance(value, float) else value
    entry["outcome"] = request.outcome.value
    entry["token_s"] = [round(at_s, 6) for at_s in request.token_s]
    entry["slo"] = {name: limit_s for name, limit_s in asdict(request.slo).items() if limit_s is not None}
    return entry


def _request_of(entry: Mapping[str, object]) -> RequestRecord:
    token_s = array("d", cast("Iterable[float]", entry.get("token_s", ())))
    check_numbers("token_s", token_s)
    slo = record_of(Slo, cast("dict[str, object]", entry.get("slo", {})))
    outcome = Outcome(cast("str", entry["outcome"]))
    return record_of(RequestRecord, {**entry, "slo": slo, "token_s": token_s, "outcome": outcome})


def _step_of(values: Iterable[object]) -> StepSample:
    return record_of(StepSample, dict(zip((part.name for part in fields(StepSample)), values, strict=True)))


def _cell(request: RequestRecord, column: str) -> object:
    if column == "meets_slo":
        return request.meets_slo()
    if column == "largest_gap_s":
        return max(request.itl_s, default=None)
    value = getattr(request, column)
    if isinstance(value, Outcome):
        return value.value
    return round(value, 6) if isinstance(value, float) and math.isfinite(value) else value


@contextmanager
def _writing(path: Path) -> Iterator[TextIO]:
    """A file to write. Raises `BadSetting` where it cannot be opened, or its disk is full before the end."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("w", encoding="utf-8", newline="") as file:
            yield file
    except OSError as error:
        raise BadSetting(f"cannot write {path}: {error.strerror or error}") from error
