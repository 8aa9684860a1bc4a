"""The token budget of a step, sized so that decodes stay on time."""

from __future__ import annotations

from headway.sched.parts.steptime import StepLoad, StepTimeModel

TILE = 16
LEAST_TOKENS = 16
"""Prefill that is granted however tight the target is: a prompt never stands still."""

_MISS_SHARE = 0.01
_STEP_UP = 0.05
_MOST_MARGIN = 4.0
_GROWTH = 1.25


class BudgetController:
    """How many prefill tokens may join a step's decodes.

    With a target: as many as keep the predicted step time × margin within it. The margin follows misses so
    that about one step in a hundred exceeds the target: up by `_STEP_UP` at a miss, down by a hundredth of
    that otherwise (stochastic quantile tracking), within [1, `_MOST_MARGIN`]. Without a target, or where nobody
    decodes: as few as reach `efficiency` of the machine's greatest tokens per second, since more would only delay
    the decodes, and whoever comes during the step.
    The budget falls at once and grows by a quarter or a `TILE` a step (hysteresis), in multiples of `TILE`.
    """

    def __init__(self, target_s: float | None, efficiency: float, most_tokens: int) -> None:
        self._target_s = target_s
        self._efficiency = efficiency
        self._most = most_tokens
        self._last = min(most_tokens, 128)
        self._margin = 1.0
        self.model = StepTimeModel()

    def budget(self, decodes: StepLoad, context_per_token: float) -> int:
        """Prefill tokens for this step; `context_per_token` is what each of them reads on average."""
        if not decodes.num_seqs:
            return min(self._most, max(LEAST_TOKENS, self._efficient())) if self.model.is_ready else self._most
        if not self.model.is_ready:
            return self._last
        wanted = self._wanted(decodes, context_per_token)
        wanted = min(wanted, max(self._last + TILE, int(self._last * _GROWTH)))
        wanted = max(LEAST_TOKENS, wanted - wanted % TILE)
        self._last = min(wanted, self._most)
        return self._last

    def observe(self, load: StepLoad, seconds: float, *, num_decodes: int) -> None:
        """Learn from a measured step; only steps in which somebody decodes tell about the target."""
        self.model.observe(load, seconds)
        if self._target_s is not None and num_decodes and load.num_tokens > num_decodes:
            change = _STEP_UP if seconds > self._target_s else -_STEP_UP * _MISS_SHARE
            self._margin = min(_MOST_MARGIN, max(1.0, self._margin * (1.0 + change)))

    def _wanted(self, decodes: StepLoad, context_per_token: float) -> int:
        if self._target_s is None:
            return max(0, self._efficient() - decodes.num_tokens)
        return self.model.tokens_within(self._target_s / self._margin, decodes, context_per_token)

    def _efficient(self) -> int:
        return self.model.efficient_tokens(self._efficiency)
