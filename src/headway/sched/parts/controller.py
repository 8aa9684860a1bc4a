"""The token budget of a step, sized so that decodes stay on time."""

from __future__ import annotations

from dataclasses import replace

from headway.core import Sequence
from headway.sched.parts.steptime import StepLoad, StepTimeModel

TILE = 16
LEAST_TOKENS = 16
"""Prefill that is granted however tight the target is: a prompt never stands still."""

LEAST_SHARE = 1.0 / 3.0
"""Of a step's time, what prompts get where decodes alone take so long that no budget keeps the step short."""

_MISS_SHARE = 0.01
_STEP_UP = 0.05
_MOST_MARGIN = 4.0
_GROWTH = 1.25
_MOST_ROOM = 1 << 30


class BudgetController:
    """How many prefill tokens may join a step's decodes, counted as tokens that read no context.

    With a target: as many as keep the predicted step time × margin within it. The margin follows misses so that about
    one step in a hundred exceeds the target: up by `_STEP_UP` at a miss, down by a hundredth of that otherwise
    (stochastic quantile tracking), within [1, `_MOST_MARGIN`]; a miss that the least budget would not have prevented
    changes nothing. Without a target, or where nobody decodes: as many as it takes for the fixed cost of a step to be
    1 - `efficiency` of it, since more would gain next to nothing and delay the decodes, and whoever comes during the
    step. A token that reads context counts as 1 + context × `context_price`: late chunks of long prompts are smaller,
    not slower. The budget falls at once and grows by a quarter or by `TILE` a step (hysteresis).
    Prompts always get `LEAST_TOKENS`; where decodes take so long that the target is missed even so, or that the fixed
    cost hardly counts any more, `LEAST_SHARE` of the step's time: else they would hold their memory and hardly move.
    """

    def __init__(self, target_s: float | None, most_tokens: int) -> None:
        self._target_s = target_s
        self._efficiency = 1.0
        self._most = most_tokens
        self._last = min(most_tokens, 128)
        self._margin = 1.0
        self.model = StepTimeModel()

    def adopt(self, other: BudgetController) -> None:
        """Go on with what another one learned of the machine, and from where it stood."""
        self.model, self._margin = other.model, other._margin
        self._last = min(self._most, other._last)

    def budget(self, decodes: StepLoad, efficiency: float) -> int:
        """Prefill tokens for this step; where context has a price, they may be more than a step can have."""
        self._efficiency = efficiency
        if not self.model.is_ready:
            return self._last if decodes.num_seqs else self._most
        most = _MOST_ROOM if self.context_price else self._most
        if not decodes.num_seqs:
            return min(most, max(LEAST_TOKENS, self._efficient(decodes)))
        wanted = max(self._wanted(decodes), self._least(decodes))
        wanted = min(wanted, max(self._last + TILE, int(self._last * _GROWTH)))
        self._last = min(wanted, most)
        return self._last

    def observe(self, load: StepLoad, seconds: float, decodes: StepLoad) -> None:
        """Learn from a measured step, of which `decodes` is a part.

        Only steps with decodes and prefill tell about the target.
        """
        is_mixed = decodes.num_seqs > 0 and load.num_tokens > decodes.num_tokens
        if self._target_s is not None and is_mixed and self.model.is_ready:
            spared_s = self.model.predict(load) - self.model.predict(_with_tokens(decodes, self._least(decodes)))
            if seconds <= self._target_s:
                self._scale_margin(-_STEP_UP * _MISS_SHARE)
            elif seconds - spared_s <= self._target_s:
                self._scale_margin(_STEP_UP)
        self.model.observe(load, seconds)

    @property
    def context_price(self) -> float:
        """How many tokens without context cost as much as reading one token of context; 0 where that is unknown."""
        is_off = self._target_s is None and self._efficiency >= 1.0
        return self.model.context_price if self.model.is_ready and not is_off else 0.0

    @property
    def fixed_s(self) -> float:
        """Seconds that any step costs; 0 where that is unknown."""
        return self.model.fixed_s

    def price_s(self, seq: Sequence, num_pending: int) -> float:
        """Seconds of prefill that a sequence's last `num_pending` tokens add to steps; 0 where that is unknown."""
        return self.model.prefill_s(num_pending, seq.num_tokens - num_pending) if self.model.is_ready else 0.0

    def _scale_margin(self, change: float) -> None:
        self._margin = min(_MOST_MARGIN, max(1.0, self._margin * (1.0 + change)))

    def _least(self, decodes: StepLoad) -> int:
        """What prompts get however long the decodes take."""
        if self._target_s is not None and self.model.predict(_with_tokens(decodes, LEAST_TOKENS)) <= self._target_s:
            return LEAST_TOKENS
        shared_s = self.model.predict(decodes) / (1.0 - LEAST_SHARE)
        return max(LEAST_TOKENS, self.model.tokens_within(shared_s, decodes))

    def _wanted(self, decodes: StepLoad) -> int:
        if self._target_s is None:
            return self._efficient(decodes)
        return self.model.tokens_within(self._target_s / self._margin, decodes)

    def _efficient(self, decodes: StepLoad) -> int:
        return self.model.tokens_within(self.model.efficient_s(self._efficiency), decodes)


def _with_tokens(load: StepLoad, num: int) -> StepLoad:
    return replace(load, num_tokens=load.num_tokens + num)
