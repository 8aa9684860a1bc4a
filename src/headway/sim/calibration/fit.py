"""From measured steps to a cost model: a rising curve of tokens plus linear terms, none negative."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

from headway.errors import BadSetting
from headway.sim.calibration.nnls import solve
from headway.sim.fitted import Fitted
from headway.sim.load import Load

KNOTS = (1, 4, 8, 12, 16, 24, 32, 64, 128, 256)
"""Where the curve of tokens may bend."""

_FAR = 1024
_NUM_ROUNDS = 8
_TERMS = ("lane_s", "drawn_s", "context_s", "attend_s", "host_s", "host_lane_s")


@dataclass(frozen=True, slots=True)
class Observation:
    """One measured step. `is_live`: the engine's own time is in it; else it is the executor's alone."""

    load: Load
    seconds: float
    is_live: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """A cost model with the relative errors of what it was fitted to, ascending, of either kind."""

    model: Fitted
    probe_errors: Sequence[float]
    live_errors: Sequence[float]


def fit_steps(observations: Sequence[Observation], swap_s: float = 0.0) -> Fit:
    """Fit by relative error, its absolute value rather than its square: a hiccup of the machine moves nothing.

    Iteratively reweighted least squares; each round is one over non-negative coefficients. Raises `BadSetting` where
    there is too little to fit.
    """
    num_unknown = len(KNOTS) + 1 + len(_TERMS)
    if len(observations) < 2 * num_unknown:
        raise BadSetting(
            f"{len(observations)} steps were measured; a fit needs at least {2 * num_unknown}: allow more time"
        )
    rows = [_terms(one) for one in observations]
    weights = [1.0 / one.seconds for one in observations]
    found: list[float] = []
    trust = [1.0] * len(rows)
    for _ in range(_NUM_ROUNDS):
        found = _solve(rows, observations, weights, trust)
        misses = [
            abs(sum(factor * term for factor, term in zip(found, row, strict=True)) * weight - 1.0)
            for row, weight in zip(rows, weights, strict=True)
        ]
        trust = [1.0 / max(miss, 0.01) for miss in misses]
    model = _model(found, swap_s)
    errors = [(one.is_live, abs(_predict(model, one) / one.seconds - 1.0)) for one in observations]
    return Fit(
        model=model,
        probe_errors=sorted(error for is_live, error in errors if not is_live),
        live_errors=sorted(error for is_live, error in errors if is_live),
    )


def quantile(ascending: Sequence[float], share: float) -> float:
    """The value at `share` of a sample in ascending order; not a number where it is empty."""
    return ascending[min(len(ascending) - 1, int(share * len(ascending)))] if ascending else math.nan


def _predict(model: Fitted, one: Observation) -> float:
    num_lanes = one.load.num_decodes + len(one.load.prefills)
    host_s = 0.0 if one.is_live else model.host_s + num_lanes * model.host_lane_s
    return model.predict(one.load) - host_s


def _solve(
    rows: Sequence[Sequence[float]],
    observations: Sequence[Observation],
    weights: Sequence[float],
    trust: Sequence[float],
) -> list[float]:
    size = len(rows[0])
    gram = [[0.0] * size for _ in range(size)]
    moments = [0.0] * size
    for row, one, weight, faith in zip(rows, observations, weights, trust, strict=True):
        factor = weight * weight * faith
        for i, left in enumerate(row):
            if left:
                moments[i] += factor * left * one.seconds
                line = gram[i]
                for k, right in enumerate(row):
                    line[k] += factor * left * right
    return solve(gram, moments)


def _terms(one: Observation) -> list[float]:
    """A constant, the part of the tokens in each stretch between knots, and the linear terms."""
    load = one.load
    num, num_lanes = load.num_tokens, load.num_decodes + len(load.prefills)
    stretches = [float(min(max(num - low, 0), high - low)) for low, high in pairwise(KNOTS)]
    attended = sum(chunk * (start + 0.5 * chunk) for chunk, start in load.prefills)
    live = (1.0, float(num_lanes)) if one.is_live else (0.0, 0.0)
    beyond = float(max(num - KNOTS[-1], 0))
    return [1.0, *stretches, beyond, num_lanes, load.num_drawn, load.decode_context, attended, *live]


def _model(found: Sequence[float], swap_s: float) -> Fitted:
    constant, slopes = found[0], found[1 : len(KNOTS) + 1]
    lengths = [high - low for low, high in pairwise((*KNOTS, _FAR))]
    heights = accumulate((slope * length for slope, length in zip(slopes, lengths, strict=True)), initial=constant)
    points = tuple(zip((*KNOTS, _FAR), heights, strict=True))
    linear = dict(zip(_TERMS, found[len(KNOTS) + 1 :], strict=True))
    return Fitted(rows=points, swap_s=swap_s, **linear)
