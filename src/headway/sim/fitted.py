"""Step times fitted to one engine on one machine, and the file that keeps the fit."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path

from headway.errors import BadSetting
from headway.sim.load import Load

FORMAT = "headway-step-times"
VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitted:
    """A step's seconds from seven coefficients (COSTMODEL §9), none negative.

    fixed_s + (weights_sᵖ + (tokens · token_s)ᵖ)^(1/p) + decode context · context_s
    + Σ chunk · (start + chunk ÷ 2) · attend_s + drawn rows · drawn_s + swapped blocks · swap_s
    """

    fixed_s: float
    weights_s: float
    token_s: float
    norm: float
    context_s: float
    attend_s: float
    drawn_s: float
    swap_s: float = 0.0

    def predict(self, load: Load) -> float:
        """Seconds of a step."""
        seconds = self.fixed_s + load.decode_context * self.context_s + load.num_drawn * self.drawn_s
        if load.num_tokens:
            norm = self.norm
            seconds += (self.weights_s**norm + (load.num_tokens * self.token_s) ** norm) ** (1 / norm)
        for chunk, start in load.prefills:
            seconds += chunk * (start + 0.5 * chunk) * self.attend_s
        return seconds + load.num_swapped * self.swap_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """A fit with what it was made on: `about` names machine, model and executor, `error` the mean relative error."""

    model: Fitted
    num_steps: int
    error: float
    about: Mapping[str, object] = field(default_factory=dict)


def write_calibration(calibration: Calibration, path: Path) -> None:
    """Write a calibration as JSON. Raises `BadSetting` if the file cannot be written."""
    document = {
        "format": FORMAT,
        "version": VERSION,
        "about": dict(calibration.about),
        "fit": {"num_steps": calibration.num_steps, "mean_relative_error": calibration.error},
        "coefficients": asdict(calibration.model),
    }
    try:
        path.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    except OSError as error:
        raise BadSetting(f"cannot write {path}: {error.strerror}") from error


def read_calibration(path: Path) -> Calibration:
    """The calibration that `write_calibration` wrote. Raises `BadSetting` naming the field that is wrong."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise BadSetting(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from error
    except (ValueError, RecursionError) as error:
        raise BadSetting(f"{path} is not JSON: {error}") from error
    if not isinstance(document, dict) or document.get("format") != FORMAT or document.get("version") != VERSION:
        raise BadSetting(f"{path} is no file of step times; write one with `headway calibrate`")
    coefficients = document.get("coefficients")
    if not isinstance(coefficients, dict):
        raise BadSetting(f"{path}: coefficients must be an object")
    values = {entry.name: _coefficient(coefficients, entry.name, path) for entry in fields(Fitted)}
    if not 1.0 <= values["norm"] <= 64.0:
        raise BadSetting(f"{path}: norm is {values['norm']:g}; it must be between 1 and 64")
    fit = document.get("fit")
    facts = fit if isinstance(fit, dict) else {}
    about = document.get("about")
    return Calibration(
        model=Fitted(**values),
        num_steps=int(facts.get("num_steps", 0)),
        error=float(facts.get("mean_relative_error", math.nan)),
        about=about if isinstance(about, dict) else {},
    )


def read_fitted(path: Path) -> Fitted:
    """The cost model of a calibration file. Raises `BadSetting` like `read_calibration`."""
    return read_calibration(path).model


def _coefficient(coefficients: Mapping[str, object], name: str, path: Path) -> float:
    value = coefficients.get(name, 0.0 if name == "swap_s" else None)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0.0 <= value < math.inf:
        raise BadSetting(f"{path}: coefficient {name} is {value!r}; it must be a number of at least 0")
    return float(value)
