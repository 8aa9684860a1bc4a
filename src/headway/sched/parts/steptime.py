"""How long a step will take: a small linear model, fitted online to measured steps."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from statistics import median

NUM_TERMS = 4
FORGETTING = 0.998
LETTING_GO = 0.9995
MIN_STEPS = 16
PACE_S = 1.0
USUAL_S = 120.0
_RIDGE = 1e-6
_SWEEPS = 12
_MOST_TOKENS = 1 << 30
_MOST_PRICE = 0.1
_HICCUP = 4.0
_FEW = 7
"""Tokens up to which a step counts as one of few."""
_KEPT = 256


@dataclass(slots=True)
class StepLoad:
    """What makes a step long: tokens computed, tokens of context they read, sequences."""

    num_tokens: int = 0
    num_context: int = 0
    num_seqs: int = 0

    def terms(self) -> tuple[float, float, float, float]:
        """Regressors: a constant, tokens, thousands of context tokens read, sequences."""
        return 1.0, float(self.num_tokens), self.num_context / 1000.0, float(self.num_seqs)


class _Sums:
    """What least squares needs of steps; `num_steps` counts all steps up to the last one that was added."""

    __slots__ = ("gram", "moments", "num_steps")

    def __init__(self) -> None:
        self.gram = [[0.0] * NUM_TERMS for _ in range(NUM_TERMS)]
        self.moments = [0.0] * NUM_TERMS
        self.num_steps = 0

    def add(self, terms: tuple[float, ...], seconds: float, kept: float) -> None:
        """One more step; those before it keep that share of their weight."""
        for row, left in zip(self.gram, terms, strict=True):
            for at, right in enumerate(terms):
                row[at] = kept * row[at] + left * right
        for at, term in enumerate(terms):
            self.moments[at] = kept * self.moments[at] + term * seconds

    def add_sums(self, other: _Sums, weight: float) -> None:
        """All steps of another one, weighted."""
        for row, more in zip(self.gram, other.gram, strict=True):
            for at, value in enumerate(more):
                row[at] += weight * value
        for at, value in enumerate(other.moments):
            self.moments[at] += weight * value


class StepTimeModel:
    """seconds = pace × (c₀ + c₁·tokens + c₂·context + c₃·sequences), every coefficient at least 0.

    The pace is the mean of measured ÷ fitted seconds over the last `PACE_S` of steps, its mean over `USUAL_S` what the
    machine usually does, and the coefficients are fitted to measured seconds ÷ pace. A machine that slows down while
    its load grows would else be taken for one whose sequences are dear, and its fixed cost for nothing; steps then get
    so small, and so alike, that no later one corrects that. For the same reason the fixed cost that sizes steps is a
    mean over `USUAL_S`, where possible of what the middle one of the last `_KEPT` steps of few tokens took: it does not
    change within seconds, whatever a fit or another process makes of them. The first fit alone says what pace 1 is.
    Were it to follow the usual pace, it would change what that is measured by: both would swing, for minutes, and steps
    of different sizes, remembered for different times, would be fitted at different paces.

    Weighted least squares in which a step's weight fades by `FORGETTING` with every later one of about its size (to a
    factor of two in tokens), so the fit follows what changes for good, and by `LETTING_GO` with every step. What
    is known of sizes that do not occur any more must outlast the others: where all steps are alike, no fit tells their
    fixed cost from that of their tokens. Solved by coordinate descent on the 4 × 4 normal equations. A step that took
    more than `_HICCUP` times its prediction, or less than that part of it, counts as that: it must not bend the model.
    """

    def __init__(self) -> None:
        self._sizes: dict[int, _Sums] = {}
        self._coefficients = [0.0] * NUM_TERMS
        self._num_steps = 0
        self._early: list[tuple[tuple[float, ...], float]] = []
        self._few: deque[tuple[tuple[float, ...], float]] = deque(maxlen=_KEPT)
        self._pace = self._usual = 1.0
        self._fixed_s = self._least_s = self._known_s = 0.0

    @property
    def is_ready(self) -> bool:
        """Whether enough steps were seen to believe a prediction."""
        return self._num_steps >= MIN_STEPS

    @property
    def coefficients(self) -> tuple[float, ...]:
        """Seconds per step, per token, per thousand context tokens, per sequence, at pace 1."""
        return tuple(self._coefficients)

    def observe(self, load: StepLoad, seconds: float) -> None:
        """Learn from a measured step. One that took no time says nothing: a clock may tick more slowly than that."""
        if seconds <= 0:
            return
        if not self.is_ready:
            self._early.append((load.terms(), seconds))
            self._begin()
        else:
            if (fitted_s := self._fitted_s(load)) > 0:
                expected_s = self._pace * fitted_s
                seconds = min(max(seconds, expected_s / _HICCUP), expected_s * _HICCUP)
                self._follow(seconds / fitted_s, self._usual * fitted_s)
            self._add(load.terms(), seconds / self._pace)
            if self._num_steps % 4 == 0:
                self._solve()
        if self.is_ready:
            self._known_s = min(USUAL_S, self._known_s + seconds)
            self._fixed_s += min(1.0, seconds / self._known_s) * (self._least_s - self._fixed_s)

    def predict(self, load: StepLoad) -> float:
        """Expected seconds of a step."""
        return self._pace * self._fitted_s(load)

    def tokens_within(self, seconds: float, base: StepLoad) -> int:
        """Most tokens without context that can join `base` so that the step stays within `seconds`."""
        spare, per_token = seconds - self.predict(base), self._pace * self._coefficients[1]
        if spare <= 0:
            return 0
        return int(min(spare / per_token, _MOST_TOKENS)) if per_token > 0 else _MOST_TOKENS

    def efficient_s(self, share: float) -> float:
        """The step of which 1 - `share` is the cost of any step at all, in seconds; a share of 1 is never reached.

        At the usual pace: while the machine is slow, steps get smaller, not longer, and streams hardly notice.
        """
        return self.fixed_s / (1.0 - share) if share < 1.0 else math.inf

    @property
    def fixed_s(self) -> float:
        """The cost of any step, in seconds, at the usual pace; 0 where that is unknown."""
        return self._usual * self._fixed_s

    @property
    def context_price(self) -> float:
        """Reading one token of context in tokens that read none."""
        _, per_token, per_thousand, _ = self._coefficients
        return min(_MOST_PRICE, per_thousand / 1000.0 / per_token) if per_token > 0 else 0.0

    def prefill_s(self, num_tokens: int, start: int) -> float:
        """Seconds that so many tokens of one prompt add to steps, behind `start` that were computed before."""
        _, per_token, per_thousand, _ = self._coefficients
        return self._pace * num_tokens * (per_token + per_thousand / 1000.0 * (start + 0.5 * num_tokens))

    def _least(self) -> float:
        """What any step costs at pace 1: what those of few tokens took beyond their tokens and context.

        Where there were none, c₀. That is less certain: it says where the line through large steps meets zero, and some
        machines take more for ten tokens than that line; how many such steps there were then decides.
        """
        if not self._few:
            return self._coefficients[0]
        _, per_token, per_thousand, _ = self._coefficients
        return max(0.0, median(took - per_token * terms[1] - per_thousand * terms[2] for terms, took in self._few))

    def _fitted_s(self, load: StepLoad) -> float:
        """Seconds of a step at pace 1."""
        return sum(factor * term for factor, term in zip(self._coefficients, load.terms(), strict=True))

    def _follow(self, pace: float, usual_s: float) -> None:
        """Move both paces by that of a step.

        It weighs by the seconds that it usually takes. By those it took slow ones would weigh more: on a restless
        machine the pace would be too high, and the coefficients, fitted to what is left, shrink without end.
        """
        self._pace += min(1.0, usual_s / PACE_S) * (pace - self._pace)
        self._usual += min(1.0, usual_s / USUAL_S) * (pace - self._usual)

    def _begin(self) -> None:
        """Fit the first steps anew.

        Where seconds are a sum of such terms, a step takes at most as many times another's seconds as the most grown of
        its terms. Of one that takes `_HICCUP` times that, while weights come from the disk, only that much is believed:
        it would bend the model for minutes. Two others must say so, since one may have been cut short.
        """
        self._sizes.clear()
        self._few.clear()
        self._num_steps = 0
        for terms, seconds in self._early:
            bounds = sorted(other_s * _growth(other, terms) for other, other_s in self._early)
            most_s = bounds[:2][-1]
            self._add(terms, seconds if seconds <= _HICCUP * most_s else most_s)
        self._solve()
        if self.is_ready:
            self._early.clear()

    def _add(self, terms: tuple[float, ...], seconds: float) -> None:
        sums = self._sizes.setdefault(int(terms[1]).bit_length(), _Sums())
        sums.add(terms, seconds, FORGETTING * LETTING_GO ** (self._num_steps - sums.num_steps))
        self._num_steps += 1
        sums.num_steps = self._num_steps
        if terms[1] <= _FEW:
            self._few.append((terms, seconds))

    def _solve(self) -> None:
        known = _Sums()
        for sums in self._sizes.values():
            known.add_sums(sums, LETTING_GO ** (self._num_steps - sums.num_steps))
        found = self._coefficients
        for _ in range(_SWEEPS):
            for at, row in enumerate(known.gram):
                rest = sum(row[other] * found[other] for other in range(NUM_TERMS) if other != at)
                found[at] = max(0.0, (known.moments[at] - rest) / (row[at] + _RIDGE))
        self._least_s = self._least()


def _growth(before: tuple[float, ...], after: tuple[float, ...]) -> float:
    """How many times as much the most grown term is; a term that was nothing has grown without bound."""
    return max(new / old if old else math.inf for old, new in zip(before, after, strict=True) if new)
