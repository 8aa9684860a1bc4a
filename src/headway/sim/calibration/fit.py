"""From measured steps to a cost model: a rising curve of tokens plus linear terms, none negative.

The executor's seconds and the engine's own are measured apart and fitted apart: the small ones would drown in the noise
of the others.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, combinations, pairwise

from headway.errors import BadSetting
from headway.sim.calibration.nnls import solve
from headway.sim.fitted import Fitted
from headway.sim.load import Load

KNOTS = (1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 13, 16, 24, 32, 64, 128, 256)
"""Where the curve of tokens may bend. Kernels work in tiles of four, six or eight rows, and where the second begins, at
five, seven or nine, the time jumps: by a quarter at the seventh row where a tile has six.
"""

_FAR = 1024
_NUM_ROUNDS = 8
_TERMS = ("lane_s", "drawn_s", "context_s", "attend_s")
_LEAST_S = 1e-4
"""What takes less is judged as if it took this long: nobody waits for it."""


@dataclass(frozen=True, slots=True)
class Observation:
    """One measured step: the executor's `seconds`, and the engine's own from the step before; None without one.

    `start_s` is when it began, on the engine's clock; `between_s` of the engine's own had passed by then.
    """

    load: Load
    seconds: float
    host_s: float | None = None
    start_s: float = 0.0
    between_s: float = 0.0

    @property
    def num_lanes(self) -> int:
        """Sequences in the step."""
        return self.load.num_decodes + len(self.load.prefills)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """A cost model with the relative errors of what it was fitted to, ascending, of either kind."""

    model: Fitted
    probe_errors: Sequence[float]
    live_errors: Sequence[float]


def fit_steps(observations: Sequence[Observation], swap_s: float = 0.0) -> Fit:
    """Fit the executor's seconds over all steps, and the engine's over those that have them.

    Raises `BadSetting` where there is too little to fit.
    """
    num_unknown = len(KNOTS) + 1 + len(_TERMS)
    if len(observations) < 2 * num_unknown:
        raise BadSetting(
            f"{len(observations)} steps were measured; a fit needs at least {2 * num_unknown}: allow more time"
        )
    found = _fitted([_terms(one) for one in observations], [one.seconds for one in observations])
    hosts = [(one.num_lanes, one.host_s) for one in observations if one.host_s is not None]
    host = _fitted([[1.0, float(num)] for num, _ in hosts], [host_s for _, host_s in hosts]) if hosts else [0.0, 0.0]
    shares = sorted(one.between_s / one.host_s for one in observations if one.host_s)
    model = replace(_model(found, host, swap_s), between_share=quantile(shares, 0.5) if shares else 0.0)
    errors = [(one.host_s is not None, _error(model, one)) for one in observations]
    return Fit(
        model=model,
        probe_errors=sorted(error for is_live, error in errors if not is_live),
        live_errors=sorted(error for is_live, error in errors if is_live),
    )


def _fitted(rows: Sequence[Sequence[float]], targets: Sequence[float]) -> list[float]:
    """Coefficients by relative error, its absolute value rather than its square: a hiccup of the machine moves nothing.

    Iteratively reweighted least squares; each round is one over non-negative coefficients.
    """
    found: list[float] = []
    weights = [1.0 / max(target, _LEAST_S) for target in targets]
    trust = [1.0] * len(rows)
    for _ in range(_NUM_ROUNDS):
        found = _solve(rows, targets, [weight * weight * faith for weight, faith in zip(weights, trust, strict=True)])
        misses = [
            abs(sum(factor * term for factor, term in zip(found, row, strict=True)) - target) * weight
            for row, target, weight in zip(rows, targets, weights, strict=True)
        ]
        trust = [1.0 / max(miss, 0.01) for miss in misses]
    return found


def quantile(ascending: Sequence[float], share: float) -> float:
    """The value at `share` of a sample in ascending order; not a number where it is empty."""
    return ascending[min(len(ascending) - 1, int(share * len(ascending)))] if ascending else math.nan


def _error(model: Fitted, one: Observation) -> float:
    """The relative error of what is predicted for a step, the engine's own time included where it was measured."""
    if one.host_s is None:
        return abs(model.executor_s(one.load) / one.seconds - 1.0)
    return abs(model.predict(one.load) / (one.seconds + one.host_s) - 1.0)


def _solve(rows: Sequence[Sequence[float]], targets: Sequence[float], weights: Sequence[float]) -> list[float]:
    """One round of weighted least squares."""
    size = len(rows[0])
    gram = [[0.0] * size for _ in range(size)]
    moments = [0.0] * size
    for row, target, factor in zip(rows, targets, weights, strict=True):
        for i, left in enumerate(row):
            if left:
                weighted = factor * left
                moments[i] += weighted * target
                line = gram[i]
                for k in range(i, size):
                    line[k] += weighted * row[k]
    for i, k in combinations(range(size), 2):
        gram[k][i] = gram[i][k]
    return solve(gram, moments)


def _terms(one: Observation) -> list[float]:
    """A constant, the part of the tokens in each stretch between knots, and the linear terms."""
    load = one.load
    num = load.num_tokens
    stretches = [float(min(max(num - low, 0), high - low)) for low, high in pairwise(KNOTS)]
    attended = sum(chunk * (start + 0.5 * chunk) for chunk, start in load.prefills)
    beyond = float(max(num - KNOTS[-1], 0))
    return [1.0, *stretches, beyond, one.num_lanes, load.num_drawn, load.decode_context, attended]


def _model(found: Sequence[float], host: Sequence[float], swap_s: float) -> Fitted:
    constant, slopes = found[0], found[1 : len(KNOTS) + 1]
    lengths = [high - low for low, high in pairwise((*KNOTS, _FAR))]
    heights = accumulate((slope * length for slope, length in zip(slopes, lengths, strict=True)), initial=constant)
    points = tuple(zip((*KNOTS, _FAR), heights, strict=True))
    linear = dict(zip(_TERMS, found[len(KNOTS) + 1 :], strict=True))
    return Fitted(rows=points, swap_s=swap_s, host_s=host[0], host_lane_s=host[1], **linear)
