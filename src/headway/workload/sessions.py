"""Conversations: each turn sends all that was said before, and what is new."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from headway.workload.durations import Durations
from headway.workload.lengths import Lengths
from headway.workload.pairs import Pairs
from headway.workload.traces import Trace

Turn = tuple[int, int]  # new prompt tokens, output tokens


class Conversations(Protocol):
    """A law of conversations."""

    def conversations(self, rng: np.random.Generator) -> Iterator[Sequence[Turn]]:
        """Endless conversations of at least one turn."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class MadeUp:
    """`turns` turns of lengths `pairs`. Before a later turn, with chance `tool_share`, a tool's output of `tool_tokens`
    tokens goes in: what an agent reads between two questions.
    """

    turns: Lengths
    pairs: Pairs
    tool_share: float = 0.0
    tool_tokens: Lengths | None = None

    def conversations(self, rng: np.random.Generator) -> Iterator[Sequence[Turn]]:
        """Endless conversations."""
        of_turns, of_pairs, of_tools = rng.spawn(3)
        pairs = self.pairs.pairs(of_pairs)
        while True:
            num_turns = int(self.turns.draw(of_turns, 1)[0])
            yield [self._turn(next(pairs), turn, of_tools) for turn in range(num_turns)]

    def _turn(self, pair: Turn, turn: int, rng: np.random.Generator) -> Turn:
        num_new, num_output = pair
        if turn and self.tool_tokens is not None and rng.random() < self.tool_share:
            num_new += int(self.tool_tokens.draw(rng, 1)[0])
        return num_new, num_output


@dataclass(frozen=True, slots=True, kw_only=True)
class Remembered:
    """Whole conversations of a trace, drawn with replacement."""

    recorded: Sequence[Sequence[Turn]]

    def conversations(self, rng: np.random.Generator) -> Iterator[Sequence[Turn]]:
        """Endless conversations."""
        while True:
            yield self.recorded[int(rng.integers(len(self.recorded)))]


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionRule:
    """How sessions go: their turns, the pause `think` before each later turn, and the context they must fit.

    A session ends before the turn whose prompt and output would exceed `max_context` tokens.
    """

    conversations: Conversations
    think: Durations | None = None
    max_context: int | None = None


def recorded_turns(trace: Trace) -> list[list[Turn]]:
    """A trace's conversations as turns. A prompt that is not longer than what was said before begins a new one."""
    rows = defaultdict(list)
    for row in trace.rows:
        rows[row.session].append(row)
    conversations: list[list[Turn]] = []
    for session in rows.values():
        said = 0
        turns: list[Turn] = []
        for row in sorted(session, key=lambda row: row.turn):
            if turns and row.num_prompt <= said:
                conversations.append(turns)
                turns, said = [], 0
            turns.append((row.num_prompt - said, row.num_output))
            said = row.num_prompt + row.num_output
        conversations.append(turns)
    return conversations
