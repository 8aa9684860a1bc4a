"""What a batch asks of the device: all that a cost model may look at."""

from __future__ import annotations

from dataclasses import dataclass, field

from headway.core import Batch


@dataclass(slots=True)
class Load:
    """One step in numbers.

    `num_tokens` rows pass the layers, padding and wasted rows among them; `num_drawn` rows pass the output head.
    Decodes are lanes of one token: `num_decodes` of them read `decode_context` tokens of KV together. Each of
    `prefills` is (tokens, tokens computed before them). `num_swapped` blocks cross the link to the host, in either
    direction.
    """

    num_tokens: int = 0
    num_drawn: int = 0
    num_decodes: int = 0
    decode_context: int = 0
    prefills: list[tuple[int, int]] = field(default_factory=list)
    num_swapped: int = 0


def load_of(batch: Batch) -> Load:
    """The load of a batch."""
    prefills = []
    num_tokens = num_drawn = num_decodes = decode_context = 0
    for lane in batch.lanes:
        num = len(lane.token_ids)
        if lane.draws:
            num_drawn += len(lane.draws)
        if num == 1:
            num_decodes += 1
            decode_context += lane.start + 1
        else:
            num_tokens += num
            prefills.append((num, lane.start))
        num_tokens += lane.padding
    num_tokens += num_decodes + batch.num_wasted_rows
    num_swapped = len(batch.swap_out) + len(batch.swap_in)
    return Load(num_tokens, num_drawn, num_decodes, decode_context, prefills, num_swapped)
