"""Which batches to measure: decodes at several contexts, chunks of prompts, and both together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import product

from headway.core import Batch, Draw, Lane, SamplingParams

_DECODES = (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 13, 16, 24, 32, 48, 64)
_CONTEXTS = (32, 256, 1024)
_CHUNKS = (16, 32, 64, 128, 256, 512, 1024)
_MOST_CONTEXT = 24_576
"""Tokens of context of a probe of decodes: more takes seconds and teaches nothing new."""

_GREEDY = SamplingParams(temperature=0.0, max_tokens=1)
_EOS = frozenset({0})
_TOKEN_ID = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """One batch: `num_decodes` sequences with `context` tokens each, and `chunks` of (tokens, tokens before them).

    `draws` says whether the chunks end their prompts, so that each draws a token.
    """

    num_decodes: int = 0
    context: int = 0
    chunks: tuple[tuple[int, int], ...] = ()
    draws: bool = False

    @property
    def num_tokens(self) -> int:
        """Rows of the step."""
        return self.num_decodes + sum(num for num, _ in self.chunks)

    @property
    def longest(self) -> int:
        """Tokens of its longest sequence."""
        return max([self.context, *(num + start for num, start in self.chunks)])

    def num_blocks(self, block_size: int) -> int:
        """Blocks that all its sequences hold."""
        return self.num_decodes * -(-self.context // block_size) + sum(
            -(-(num + start) // block_size) for num, start in self.chunks
        )


def design(*, num_blocks: int, block_size: int, context: int, most_tokens: int) -> list[Probe]:
    """All probes that fit into the pool, the model's context and a step's tokens."""
    return [
        probe
        for probe in _every()
        if probe.num_tokens <= most_tokens and probe.longest <= context and probe.num_blocks(block_size) <= num_blocks
    ]


def _every() -> Iterator[Probe]:
    for num, context in product(_DECODES, _CONTEXTS):
        if num * context <= _MOST_CONTEXT:
            yield Probe(num_decodes=num, context=context)
    for num, start in product(_CHUNKS, (0, 512)):
        yield Probe(chunks=((num, start),))
    for num, each in ((2, 4), (4, 8), (8, 16), (4, 32), (4, 64)):
        yield Probe(chunks=((each, 0),) * num)
        yield Probe(chunks=((each, 0),) * num, draws=True)
    for num, chunk in product((4, 16, 32), (16, 64, 128, 256)):
        yield Probe(num_decodes=num, context=256, chunks=((chunk, 64),))


def batch_of(probe: Probe, block_size: int) -> Batch:
    """The probe as a step; each sequence has blocks of its own, from block 0 on."""
    lanes: list[Lane] = []
    first = 0
    for num, start, draws in _lanes(probe):
        num_blocks = -(-(start + num) // block_size)
        table = list(range(first, first + num_blocks))
        first += num_blocks
        name = f"probe-{len(lanes)}"
        known = [_TOKEN_ID] * (start + num)
        drawn = (Draw(name, _GREEDY, 0, 0, known, len(known), _EOS),) if draws else ()
        lanes.append(Lane(name, known[start:], start, table, drawn))
    return Batch(0, lanes)


def _lanes(probe: Probe) -> Iterable[tuple[int, int, bool]]:
    """Tokens, tokens before them, and whether one is drawn."""
    yield from ((num, start, probe.draws) for num, start in probe.chunks)
    yield from ((1, probe.context - 1, True) for _ in range(probe.num_decodes))
