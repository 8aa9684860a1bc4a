"""Prompt and output lengths together, since long prompts rarely get average answers."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from headway.workload.lengths import Lengths, scale

CHUNK = 256


class Pairs(Protocol):
    """A joint law of (prompt, output) tokens."""

    def pairs(self, rng: np.random.Generator) -> Iterator[tuple[int, int]]:
        """Endless draws."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Independent:
    """Prompt and output lengths that know nothing of each other."""

    prompt: Lengths
    output: Lengths

    def pairs(self, rng: np.random.Generator) -> Iterator[tuple[int, int]]:
        """Endless draws. The two laws have a stream each: changing one leaves the other's draws alone."""
        first, second = rng.spawn(2)
        while True:
            prompts, outputs = self.prompt.draw(first, CHUNK), self.output.draw(second, CHUNK)
            yield from zip(prompts.tolist(), outputs.tolist(), strict=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """Pairs as they were recorded, drawn with replacement: correlated as in the trace.

    `order` "shuffled" breaks the correlation and keeps both laws; "recorded" goes through the rows in turn, over and
    over.
    """

    prompts: Sequence[int]
    outputs: Sequence[int]
    order: str = "drawn"
    prompt_scale: float = 1.0
    output_scale: float = 1.0

    def pairs(self, rng: np.random.Generator) -> Iterator[tuple[int, int]]:
        """Endless draws."""
        prompts = scale(np.asarray(self.prompts, np.int64), self.prompt_scale)
        outputs = scale(np.asarray(self.outputs, np.int64), self.output_scale)
        num_rows = len(prompts)
        position = 0
        while True:
            if self.order == "recorded":
                rows = other = (position + np.arange(CHUNK)) % num_rows
                position += CHUNK
            else:
                rows = rng.integers(0, num_rows, CHUNK)
                other = rng.integers(0, num_rows, CHUNK) if self.order == "shuffled" else rows
            yield from zip(prompts[rows].tolist(), outputs[other].tolist(), strict=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Spoken:
    """The lengths of given prompts and of the answers they had, in turn, over and over, counted as they are needed."""

    exchanges: Sequence[tuple[str, str]]
    count_tokens: Callable[[str], int]

    def pairs(self, rng: np.random.Generator) -> Iterator[tuple[int, int]]:
        """Endless; nothing is drawn."""
        del rng
        for prompt, answer in itertools.cycle(self.exchanges):
            yield max(1, self.count_tokens(prompt)), max(1, self.count_tokens(answer))


@dataclass(frozen=True, slots=True, kw_only=True)
class Alongside:
    """The lengths of given prompts in turn, over and over, each with an output length of its own."""

    prompts: Sequence[int]
    output: Lengths

    def pairs(self, rng: np.random.Generator) -> Iterator[tuple[int, int]]:
        """Endless draws."""
        prompts = itertools.cycle(self.prompts)
        while True:
            yield from zip(itertools.islice(prompts, CHUNK), self.output.draw(rng, CHUNK).tolist(), strict=True)
