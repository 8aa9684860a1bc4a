import numpy as np
import pytest

from headway.core import Batch, Draw, Lane, SamplingParams
from headway.executor.pack import pack, scored


def draw(seq_id, num_tokens, num_prompt=1, choice=0):
    return Draw(seq_id, SamplingParams(), 0, choice, [0] * num_tokens, num_prompt, frozenset())


def test_ragged_rows():
    """The example of ragged paged attention: decode at 6, chunk of 3 up to 8, fresh prompt of 2; then padding rows."""
    batch = Batch(
        step=0,
        lanes=[
            Lane("a", [11], 5, [7, 2], (draw("a", 6),)),
            Lane("b", [21, 22, 23], 5, [0, 9], padding=2),
            Lane("c", [31, 32], 0, [4], (draw("c", 2), draw("c/1", 2, choice=1))),
        ],
        num_wasted_rows=1,
    )
    packed = pack(batch, block_size=4)
    assert packed.token_ids_T.tolist() == [11, 21, 22, 23, 31, 32, 0, 0, 0]
    assert packed.positions_T.tolist() == [5, 5, 6, 7, 0, 1, 0, 0, 0]
    assert packed.slots_T.tolist() == [9, 37, 38, 39, 16, 17, -1, -1, -1]
    assert packed.cu_seqlens_S1.tolist() == [0, 1, 4, 6]
    assert packed.context_S.tolist() == [6, 8, 2]
    assert packed.block_tables_SB.tolist() == [[7, 2], [0, 9], [4, -1]]
    assert packed.draw_rows_R.tolist() == [0, 5]
    assert [entry.seq_id for entry in packed.draws] == ["a", "c", "c/1"]
    assert packed.logit_rows == [0, 1, 1]
    assert packed.scored == []
    arrays = (packed.token_ids_T, packed.positions_T, packed.slots_T, packed.cu_seqlens_S1, packed.context_S)
    assert all(array.dtype == np.int32 for array in (*arrays, packed.block_tables_SB, packed.draw_rows_R))


def test_no_lanes():
    """A batch of wasted rows alone, or of nothing, packs."""
    packed = pack(Batch(0, [], num_wasted_rows=2), block_size=4)
    assert packed.token_ids_T.tolist() == [0, 0]
    assert packed.cu_seqlens_S1.tolist() == [0]
    assert packed.block_tables_SB.shape == (0, 0)
    assert pack(Batch(0, []), block_size=4).token_ids_T.tolist() == []


def test_too_few_blocks():
    """A block table that does not cover the lane's tokens is our bug, and stops."""
    with pytest.raises(AssertionError, match="1 blocks do not cover 5 tokens"):
        pack(Batch(0, [Lane("a", [1, 2], 3, [0])]), block_size=4)


@pytest.mark.parametrize(
    ("lane", "targets"),
    [
        (Lane("a", [1, 2, 3], 0, [0], (), 2, next_id=4), [2, 3, 4]),
        (Lane("a", [1, 2, 3], 0, [0], (draw("a", 3, 3),), 2), [2, 3]),
        (Lane("a", [3], 2, [0], (draw("a", 3, 3),), 2), []),
        (Lane("a", [3, 8, 9], 2, [0], (draw("a", 5, 3),), 2), []),
        (Lane("a", [2, 3, 8, 9], 1, [0], (draw("a", 5, 3),), 2), [3]),
    ],
    ids=["chunk in the middle", "whole prompt", "last prompt token alone", "only output follows", "prompt and output"],
)
def test_scored_rows(lane, targets):
    """Every prompt row is scored on the token after it, but for the last prompt token's; output rows are not."""
    entry = scored(lane, 7)
    assert (entry.seq_id, entry.first_row, entry.num_top) == ("a", 7, 2)
    assert entry.target_ids == targets
