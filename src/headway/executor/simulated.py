"""A device that computes nothing: it moves a virtual clock and makes up tokens.

With it the engine's own scheduler runs in virtual time: tapes, simulations and tests need no model and no device.
"""

from __future__ import annotations

import sys
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from headway.clock import VirtualClock
from headway.core import Batch, BlockPair, Draw, Lane, Logprobs, StepResult, Token
from headway.executor.base import Capacity

OutputLengths = Mapping[str, int] | Callable[[str], int | None]
"""Wanted output tokens by sequence id or, for a request's choices alike, by request id; absent or None: no end."""

_CERTAIN = Logprobs(logprob=0.0, rank=1)


@dataclass(slots=True, kw_only=True)
class _Source:
    """Where one sequence's tokens come from: `key` varies them, `banned` are left out, `end_at` draws the end."""

    key: int
    end_at: int
    end_id: int
    banned: frozenset[int]


@dataclass(slots=True)
class Scheduled:
    """A launched step whose end is known: `result` moves the clock there."""

    outcome: StepResult
    end_s: float
    clock: VirtualClock

    def result(self) -> StepResult:
        """Advance the clock to the step's end; earlier ends leave it alone."""
        self.clock.advance_to(self.end_s)
        return self.outcome


class SimulatedExecutor:
    """Steps last `step_time(batch)` on `clock`; a sequence ends itself after its wanted number of output tokens.

    **Time.** Batches follow each other as through the last stage of a pipeline: a step ends at
    max(now at its launch, end of the step launched before) + `step_time(batch)`, and `result()` moves the clock there.
    With `in_flight` n the engine launches up to n batches before it waits. With `num_stages` n a batch passes n stages
    that take `step_time` each, and follows the batch before it through every one: bubbles are where none was ready.

    **Tokens.** Token number `wanted` (counted from 1) of a sequence is its smallest end-of-text id, unless `min_tokens`
    still forbids it or `ignore_eos` is set; every other token is a function of sequence id and output position, below
    `vocab_size`, and neither an end-of-text nor a stop token. A sequence without wanted length, or without end-of-text
    id, runs until its `max_output`. A preempted sequence thus goes on with the tokens it would have had. Log
    probabilities, when asked for, are those of a model that is always certain.

    Swaps and copies take no time of their own: `step_time` sees them in the batch.
    """

    def __init__(
        self,
        num_blocks: int,
        block_size: int,
        clock: VirtualClock,
        step_time: Callable[[Batch], float],
        output_lengths: OutputLengths,
        *,
        num_host_blocks: int = 0,
        in_flight: int = 1,
        num_stages: int = 1,
        vocab_size: int = 32_000,
    ) -> None:
        self._capacity = Capacity(
            num_blocks=num_blocks, block_size=block_size, num_host_blocks=num_host_blocks, in_flight=in_flight
        )
        self._clock = clock
        self._step_time = step_time
        self._wanted = output_lengths if callable(output_lengths) else output_lengths.get
        self._vocab_size = vocab_size
        self._sources: dict[str, _Source] = {}
        self._ends_s = [clock.now()] * num_stages

    def capacity(self) -> Capacity:
        """As constructed."""
        return self._capacity

    def launch(self, batch: Batch) -> Scheduled:
        """Decide at once what the step gives and when it ends."""
        self._check(batch.lanes)
        elapsed_s = self._step_time(batch)
        end_s = self._clock.now()
        for stage, free_s in enumerate(self._ends_s):
            end_s = max(end_s, free_s) + elapsed_s
            self._ends_s[stage] = end_s
        outcome = StepResult(elapsed_s=elapsed_s)
        self._make_up(batch.lanes, outcome)
        return Scheduled(outcome, end_s, self._clock)

    def swap_out(self, pairs: list[BlockPair]) -> None:
        """Nothing to move; the ids must exist."""
        self._check_pairs(pairs, self._capacity.num_blocks, self._capacity.num_host_blocks)

    def swap_in(self, pairs: list[BlockPair]) -> None:
        """Nothing to move; the ids must exist."""
        self._check_pairs(pairs, self._capacity.num_host_blocks, self._capacity.num_blocks)

    def copy_blocks(self, pairs: list[BlockPair]) -> None:
        """Nothing to move; the ids must exist."""
        self._check_pairs(pairs, self._capacity.num_blocks, self._capacity.num_blocks)

    def release(self, seq_ids: list[str]) -> None:
        """Forget where their tokens came from; it would be found again."""
        for seq_id in seq_ids:
            self._sources.pop(seq_id, None)

    def close(self) -> None:
        """Nothing to give back."""

    def _make_up(self, lanes: list[Lane], outcome: StepResult) -> None:
        """One token per draw, one score per row that asks for it. A loop of its own, since millions pass it."""
        sources, vocab_size, tokens = self._sources, self._vocab_size, outcome.tokens
        for lane in lanes:
            if lane.prompt_logprobs is not None:
                outcome.prompt_logprobs[lane.seq_id] = [_CERTAIN] * _num_scored(lane)
            for draw in lane.draws:
                source = sources.get(draw.seq_id) or self._open(draw)
                position = len(draw.token_ids) - draw.num_prompt
                if position >= source.end_at:
                    token_id = source.end_id
                else:
                    token_id = (source.key + position * 2_654_435_761) % vocab_size
                    while token_id in source.banned:
                        token_id = (token_id + 1) % vocab_size
                tokens[draw.seq_id] = [Token(token_id, None if draw.params.logprobs is None else _CERTAIN)]

    def _open(self, draw: Draw) -> _Source:
        source = self._sources[draw.seq_id] = self._source(draw)
        return source

    def _source(self, draw: Draw) -> _Source:
        params = draw.params
        wanted = self._wanted(draw.seq_id)
        if wanted is None and draw.choice:
            wanted = self._wanted(draw.seq_id.removesuffix(f"/{draw.choice}"))
        never_ends = wanted is None or params.ignore_eos or not draw.eos_ids
        return _Source(
            key=zlib.crc32(draw.seq_id.encode()),
            end_at=sys.maxsize if never_ends else max(params.min_tokens, (wanted or 0) - 1),
            end_id=min(draw.eos_ids, default=0),
            banned=draw.eos_ids.union(params.stop_token_ids),
        )

    def _check(self, lanes: list[Lane]) -> None:
        size, num_blocks = self._capacity.block_size, self._capacity.num_blocks
        for lane in lanes:
            last, table = lane.start + len(lane.token_ids) - 1, lane.block_table
            assert last >= lane.start, f"{lane.seq_id}: a lane has no tokens"
            assert last < len(table) * size, f"{lane.seq_id}: {len(table)} blocks for {last + 1}"
            assert 0 <= table[last // size] < num_blocks, f"{lane.seq_id}: no such block"

    @staticmethod
    def _check_pairs(pairs: list[BlockPair], num_from: int, num_to: int) -> None:
        for source, target in pairs:
            assert 0 <= source < num_from, f"no block {source} to copy from"
            assert 0 <= target < num_to, f"no block {target} to copy to"


def _num_scored(lane: Lane) -> int:
    """Prompt rows of a lane whose next token is known."""
    if lane.draws:
        return max(0, min(len(lane.token_ids), lane.draws[0].num_prompt - 1 - lane.start))
    return len(lane.token_ids) - (lane.next_id is None)
