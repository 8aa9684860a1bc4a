"""How much output the running sequences are assumed to need, and the room that leaves (SGLang, ALGORITHMS §9)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from headway.core import Sequence, StepPlan

CLIP_OUTPUT = 4096
"""More output than this is not reckoned with: it would only make admission timid."""

RETRACT_STEPS = 20


def most_output(seq: Sequence) -> int:
    """Output that a prompt is admitted for, clipped, for all its choices: whole, also after a retraction."""
    return min(seq.request.max_output, CLIP_OUTPUT) * seq.num_branches


def output_left(seq: Sequence) -> int:
    """Output that a sequence may still make, clipped, for all its choices."""
    return min(seq.request.max_output - seq.num_output, CLIP_OUTPUT) * seq.num_branches


def retraction_order(running: Iterable[Sequence]) -> list[Sequence]:
    """Who gives way first stands last: the fewest outputs, then the longest prompt, then the youngest."""
    return sorted(running, key=lambda seq: (-seq.num_output, seq.num_prompt))


def estimated_ratio(running: Iterable[tuple[int, int]]) -> float:
    """Share of their output that sequences, given as (emitted, max_output), may need with some steps to spare."""
    pairs = list(running)
    emitted = sum(pair[0] for pair in pairs) + RETRACT_STEPS * len(pairs)
    return min(1.0, emitted / (sum(pair[1] for pair in pairs) + 1))


class NewTokenRatio:
    """The assumed share: decays by the step while all goes well, and is estimated anew after a retraction."""

    def __init__(self, initial: float, least: float, decay_steps: int) -> None:
        self.value = initial
        self._least = least
        self._decay = (initial - least) / decay_steps

    def after_decode(self, plan: StepPlan) -> None:
        """Learn from a decode step's plan."""
        if plan.preemptions:
            self.value = estimated_ratio((entry.seq.num_output, entry.seq.request.max_output) for entry in plan.grants)
        elif plan.grants:
            self.value = max(self._least, self.value - self._decay)


@dataclass(slots=True, kw_only=True)
class PrefillRoom:
    """What is left for prompts in a step. Lengths in tokens; `page` is what memory is handed out in, and a chunk
    that does not end its prompt is a multiple of `align`.

    `num_free_tokens` counts evictable blocks as free. `owed` is what running and admitted sequences will need.
    """

    num_free_tokens: float
    owed: float
    input_tokens: int
    chunk_tokens: int | None
    page: int
    align: int
    is_first: bool = True

    @property
    def is_open(self) -> bool:
        """Whether any budget is left for another prompt."""
        has_chunk = self.chunk_tokens is None or self.chunk_tokens > 0
        return self.num_free_tokens > self.owed and self.input_tokens > 0 and has_chunk

    def holds(self, extend: int, output: int) -> bool:
        """Whether a prompt with `extend` tokens to compute fits with all its output, and the batch's input limit.

        The first of a batch may exceed the input limit alone.
        """
        if extend + output + self.page >= self.num_free_tokens - self.owed:
            return False
        return self.is_first or extend < self.input_tokens

    def cut(self, extend: int) -> int:
        """Tokens of a prompt that this step can compute: all, or what is left, aligned."""
        if self.chunk_tokens is None or extend <= self.chunk_tokens:
            return extend
        return self.chunk_tokens // self.align * self.align

    def spend(self, num_tokens: int, output: int) -> None:
        """Book a prompt or a chunk; `output` is 0 until its last chunk."""
        self.is_first = False
        self.owed += num_tokens + output
        self.input_tokens -= num_tokens
        if self.chunk_tokens is not None:
            self.chunk_tokens -= num_tokens

    def spend_mixed(self, num_decodes: int) -> None:
        """Decodes that share the step use its tokens."""
        self.owed += num_decodes
        self.input_tokens -= num_decodes
        if self.chunk_tokens is not None:
            self.chunk_tokens -= num_decodes

    def pin(self, num_tokens: int) -> None:
        """Cached tokens that can no longer be evicted."""
        self.num_free_tokens -= num_tokens
