"""Step times fitted to one engine on one machine, and the file that keeps the fit."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from pathlib import Path

from headway.core import json_value, unreadable
from headway.errors import BadSetting
from headway.sim.cost import CostModel
from headway.sim.curves import Curve
from headway.sim.load import Load

FORMAT = "headway-step-times"
VERSION = 2
_PLAIN = ("lane_s", "drawn_s", "context_s", "attend_s", "swap_s", "host_s", "host_lane_s")
_READING = ("context_s", "swap_s")
_SMALLEST = Load(num_tokens=1, num_drawn=1, num_decodes=1, decode_context=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitted(CostModel):
    """A step's seconds from a curve and seven coefficients, none negative.

    rows(tokens) + lanes · lane_s + drawn rows · drawn_s + decode context · context_s
    + Σ chunk · (start + chunk ÷ 2) · attend_s + swapped blocks · swap_s + host_s + lanes · host_lane_s

    `rows` are points (tokens, seconds) of a rising curve, linear in between and beyond: the knee below which tokens
    are free, wherever a machine has it. The last two terms are the engine's own time from one step to the next; a lane
    is a sequence's share of a step. Of this time `between_share` passes before a step begins, where no policy sees it:
    answers go out.
    """

    rows: tuple[tuple[int, float], ...]
    lane_s: float = 0.0
    drawn_s: float = 0.0
    context_s: float = 0.0
    attend_s: float = 0.0
    swap_s: float = 0.0
    host_s: float = 0.0
    host_lane_s: float = 0.0
    between_share: float = 0.0
    _curve: Curve = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Make the curve once."""
        object.__setattr__(self, "_curve", Curve(dict(self.rows)))

    def at_pace(self, reading: float, computing: float) -> Fitted:
        """The same engine where `reading_s` takes `reading` times as long, and all else `computing` times."""
        least_s = self.rows[0][1]
        plain = {name: getattr(self, name) * (reading if name in _READING else computing) for name in _PLAIN}
        rows = tuple((num, reading * least_s + computing * (seconds - least_s)) for num, seconds in self.rows)
        return Fitted(rows=rows, between_share=self.between_share, **plain)

    def predict(self, load: Load) -> float:
        """Seconds from the end of the step before to the end of this one, while there is always work."""
        return self.executor_s(load) + self._own_s(load)

    def between_s(self, load: Load) -> float:
        """Seconds of these between two steps."""
        return self.between_share * self._own_s(load)

    def executor_s(self, load: Load) -> float:
        """Seconds of these that pass inside the executor."""
        seconds = (load.num_decodes + len(load.prefills)) * self.lane_s
        seconds += load.decode_context * self.context_s + load.num_drawn * self.drawn_s
        if load.num_tokens:
            seconds += self._curve.at(load.num_tokens)
        for chunk, start in load.prefills:
            seconds += chunk * (start + 0.5 * chunk) * self.attend_s
        return seconds + load.num_swapped * self.swap_s

    def reading_s(self, load: Load) -> float:
        """Seconds of those in the executor that memory takes: weights, which every step reads, KV, and swaps."""
        weights_s = self.rows[0][1] if load.num_tokens else 0.0
        return weights_s + load.decode_context * self.context_s + load.num_swapped * self.swap_s

    def _own_s(self, load: Load) -> float:
        return self.host_s + (load.num_decodes + len(load.prefills)) * self.host_lane_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """A fit with what it was made on.

    `about` names machine, model and executor; `engine` holds the sizes that a simulation of this engine needs
    (num_blocks, block_size, max_model_len). The errors are relative, the median and the P95 of all steps. `origin` is
    how messages name it.
    """

    model: Fitted
    num_steps: int
    median_error: float
    p95_error: float
    about: Mapping[str, object] = field(default_factory=dict)
    engine: Mapping[str, int] = field(default_factory=dict)
    origin: str = field(default="the calibration", compare=False)


def write_calibration(calibration: Calibration, path: Path) -> None:
    """Write a calibration as JSON, whole or not at all. Raises `BadSetting` if the file cannot be written."""
    partial = path.with_name(f".{path.name}.partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial.write_text(json.dumps(as_document(calibration), indent=2) + "\n", encoding="utf-8")
        partial.replace(path)
    except OSError as error:
        raise BadSetting(f"cannot write {path}: {error.strerror}") from error


def as_document(calibration: Calibration) -> dict[str, object]:
    """A calibration as it stands in its file."""
    coefficients = asdict(calibration.model)
    del coefficients["_curve"]
    return {
        "format": FORMAT,
        "version": VERSION,
        "about": dict(calibration.about),
        "engine": dict(calibration.engine),
        "fit": {
            "num_steps": calibration.num_steps,
            "median_relative_error": calibration.median_error,
            "p95_relative_error": calibration.p95_error,
        },
        "coefficients": coefficients,
    }


def read_calibration(path: Path) -> Calibration:
    """The calibration that `write_calibration` wrote. Raises `BadSetting` naming the field that is wrong."""
    try:
        document = json_value(path.read_text(encoding="utf-8"), str(path))
    except (OSError, UnicodeDecodeError) as error:
        raise unreadable(path, error) from error
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise BadSetting(f"{path} is no file of step times; write one with `headway calibrate`")
    if document.get("version") != VERSION:
        raise BadSetting(
            f"{path} has version {document.get('version')!r} of step times; this program reads version {VERSION}: "
            "run `headway calibrate` again"
        )
    coefficients = _table(document, "coefficients", path)
    values = {name: _number(coefficients, name, path, 0.0) for name in _PLAIN}
    between_share = _number(coefficients, "between_share", path, 0.0)
    if between_share > 1.0:
        raise BadSetting(f"{path}: between_share is {between_share:g}; a share is at most 1")
    model = Fitted(rows=_rows(coefficients.get("rows"), path), between_share=between_share, **values)
    if not model.executor_s(_SMALLEST):
        raise BadSetting(f"{path}: by its coefficients a step takes no time; run `headway calibrate` again")
    fit = _table(document, "fit", path)
    return Calibration(
        model=model,
        num_steps=int(_number(fit, "num_steps", path)),
        median_error=_number(fit, "median_relative_error", path),
        p95_error=_number(fit, "p95_relative_error", path),
        about=_table(document, "about", path),
        origin=str(path),
        engine={
            name: int(_number({name: value}, name, path)) for name, value in _table(document, "engine", path).items()
        },
    )


def read_fitted(path: Path) -> Fitted:
    """The cost model of a calibration file. Raises `BadSetting` like `read_calibration`."""
    return read_calibration(path).model


def _table(document: Mapping[str, object], name: str, path: Path) -> dict[str, object]:
    found = document.get(name, {})
    if not isinstance(found, dict):
        raise BadSetting(f"{path}: {name} must be an object")
    return found


def _rows(found: object, path: Path) -> tuple[tuple[int, float], ...]:
    """The curve's points: counts that grow, seconds that do not fall."""
    points = found if isinstance(found, list) else []
    if not points or not all(isinstance(point, Sequence) and len(point) == 2 for point in points):
        raise BadSetting(f"{path}: coefficient rows must be a list of [tokens, seconds]")
    made = [
        (int(_number({"rows": num}, "rows", path)), _number({"rows": value}, "rows", path)) for num, value in points
    ]
    if any(later[0] <= earlier[0] or later[1] < earlier[1] for earlier, later in pairwise(made)):
        raise BadSetting(f"{path}: coefficient rows must grow from point to point, in tokens and in seconds")
    return tuple(made)


def _number(table: Mapping[str, object], name: str, path: Path, default: float | None = None) -> float:
    value = table.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0.0 <= value < math.inf:
        raise BadSetting(f"{path}: {name} is {value!r}; it must be a number of at least 0")
    if value > 1e12:
        raise BadSetting(f"{path}: {name} is beyond all bounds")
    return float(value)
