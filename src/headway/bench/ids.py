"""Prompts that mean nothing: any token ids, for experiments in which only lengths matter."""

from __future__ import annotations

import random

from headway.bench.target import Call
from headway.workload import WorkItem


class AnyIds:
    """Ids from the upper nine tenths of a vocabulary, where no special tokens are. Equal items give equal prompts."""

    def __init__(self, vocab_size: int, salt: int) -> None:
        self._vocab_size, self._salt = vocab_size, salt

    def call(self, item: WorkItem) -> Call:
        """A call of exactly `num_prompt` ids."""
        chance = random.Random(f"{self._salt} {item.seed} {item.id}")
        low, high = self._vocab_size // 10, self._vocab_size
        return Call(
            id=item.id,
            prompt=[chance.randrange(low, high) for _ in range(item.num_prompt)],
            num_prompt=item.num_prompt,
            num_output=item.num_output,
        )
