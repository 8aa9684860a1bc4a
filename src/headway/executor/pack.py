"""A batch as flat arrays: pure functions from lists to NumPy, for every executor that computes.

Names of arrays carry their shape: T rows of the step (padding and wasted rows last), S lanes, S1 is S + 1, B blocks of
the longest table, R rows that need logits. All integers are int32. Lane s owns rows cu_seqlens[s] to cu_seqlens[s + 1]:

    lane     0         1     2
    row      0 1 2 3   4     5 6   7 8 9
             prompt    one   chunk padding, wasted: token 0 at position 0, slot -1
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from headway.core import Batch, Draw, Lane

Ints = NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class Scored:
    """Prompt rows of one lane to report log probabilities for: row `first_row` + i is about token `target_ids[i]`."""

    seq_id: str
    first_row: int
    target_ids: list[int]
    num_top: int


@dataclass(frozen=True, slots=True)
class Packed:
    """One step in arrays. `context_S` counts the tokens of each lane in the cache once this step has written its own.

    `block_tables_SB` is filled up with -1. `draw_rows_R` are the rows that `draws` sample from, ascending, each once;
    draw i reads logits row `logit_rows[i]` of the R.
    """

    token_ids_T: Ints
    positions_T: Ints
    slots_T: Ints
    cu_seqlens_S1: Ints
    context_S: Ints
    block_tables_SB: Ints
    draw_rows_R: Ints
    draws: list[Draw]
    logit_rows: list[int]
    scored: list[Scored]


def pack(batch: Batch, block_size: int) -> Packed:
    """All arrays of a step. The block table of each lane must cover its tokens; extra blocks are passed on unread."""
    lanes = batch.lanes
    lengths = [len(lane.token_ids) for lane in lanes]
    assert all(lengths), "a lane has no tokens"
    offsets = [0, *accumulate(lengths)]
    num_dummies = batch.num_wasted_rows + sum(lane.padding for lane in lanes)
    drawn = [(lane, stop - 1) for lane, stop in zip(lanes, offsets[1:], strict=True) if lane.draws]
    return Packed(
        token_ids_T=_flat((lane.token_ids for lane in lanes), num_dummies, 0),
        positions_T=_flat((range(lane.start, lane.start + len(lane.token_ids)) for lane in lanes), num_dummies, 0),
        slots_T=_flat((slots_for(lane, block_size) for lane in lanes), num_dummies, -1),
        cu_seqlens_S1=np.array(offsets, np.int32),
        context_S=np.array([lane.start + length for lane, length in zip(lanes, lengths, strict=True)], np.int32),
        block_tables_SB=block_tables(lanes),
        draw_rows_R=np.array([row for _, row in drawn], np.int32),
        draws=[draw for lane, _ in drawn for draw in lane.draws],
        logit_rows=[index for index, (lane, _) in enumerate(drawn) for _ in lane.draws],
        scored=[
            scored(lane, first) for lane, first in zip(lanes, offsets, strict=False) if lane.prompt_logprobs is not None
        ],
    )


def slots_for(lane: Lane, block_size: int) -> list[int]:
    """Cache slot of every token of a lane."""
    table, start = lane.block_table, lane.start
    stop = start + len(lane.token_ids)
    assert len(table) * block_size >= stop, f"{lane.seq_id}: {len(table)} blocks do not cover {stop} tokens"
    return [table[position // block_size] * block_size + position % block_size for position in range(start, stop)]


def block_tables(lanes: list[Lane]) -> Ints:
    """The lanes' block tables, one a row, filled up with -1 to the longest."""
    longest = max((len(lane.block_table) for lane in lanes), default=0)
    tables_SB = np.full((len(lanes), longest), -1, np.int32)
    for row_B, lane in zip(tables_SB, lanes, strict=True):
        row_B[: len(lane.block_table)] = lane.block_table
    return tables_SB


def scored(lane: Lane, first_row: int) -> Scored:
    """The prompt rows of a lane that know their next token; no output tokens (after a preemption)."""
    target_ids = lane.token_ids[1:]
    if lane.draws:
        target_ids = target_ids[: max(0, lane.draws[0].num_prompt - 1 - lane.start)]
    elif lane.next_id is not None:
        target_ids = [*target_ids, lane.next_id]
    return Scored(lane.seq_id, first_row, target_ids, lane.prompt_logprobs or 0)


def _flat(runs: Iterable[Iterable[int]], num_dummies: int, dummy: int) -> Ints:
    flat = [number for run in runs for number in run]
    flat += [dummy] * num_dummies
    return np.array(flat, np.int32)
