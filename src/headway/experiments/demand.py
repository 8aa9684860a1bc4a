"""Requests of an experiment: the same ones at every rate, so that two rates or policies differ in nothing else."""

from __future__ import annotations

import csv
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from headway.workload import WorkItem

Length = tuple[int, int]
"""Prompt and output tokens."""

_P90 = 1.2816  # of the standard normal distribution


@dataclass(frozen=True, slots=True)
class Demand:
    """Lengths in order of arrival, and gaps of a Poisson process of rate 1."""

    lengths: Sequence[Length]
    gaps: Sequence[float]

    def items(self, rate: float) -> list[WorkItem]:
        """The requests, `rate` of them a second."""
        at_s, items = 0.0, []
        for number, ((num_prompt, num_output), gap) in enumerate(zip(self.lengths, self.gaps, strict=True)):
            at_s += gap / rate
            items.append(request(number, num_prompt, num_output, at_s))
        return items


def demand(lengths: Sequence[Length], seed: int = 1) -> Demand:
    """Poisson arrivals for these lengths."""
    rng = random.Random(seed)
    return Demand(lengths, [rng.expovariate(1.0) for _ in lengths])


def request(number: int, num_prompt: int, num_output: int, at_s: float, tenant: str = "") -> WorkItem:
    """One request that says exactly how many tokens it wants."""
    return WorkItem(
        id=f"r{number}",
        num_prompt=num_prompt,
        num_output=num_output,
        max_output=num_output,
        at_s=at_s,
        tenant=tenant,
    )


@dataclass(frozen=True, slots=True)
class LogNormal:
    """Tokens of one side of a request: median, 90th percentile, and the most."""

    median: float
    p90: float
    high: int

    def draw(self, rng: random.Random) -> int:
        """At least 4 tokens, at most `high`."""
        sigma = math.log(self.p90 / self.median) / _P90
        return max(4, min(self.high, round(rng.lognormvariate(math.log(self.median), sigma))))


def log_normal(num: int, prompt: LogNormal, output: LogNormal, seed: int = 2) -> list[Length]:
    """Independent log-normal lengths."""
    rng = random.Random(seed)
    return [(prompt.draw(rng), output.draw(rng)) for _ in range(num)]


def uniform(num: int, prompt: tuple[int, int], output: tuple[int, int], seed: int = 2) -> list[Length]:
    """Independent uniform lengths, both ends included."""
    rng = random.Random(seed)
    return [(rng.randint(*prompt), rng.randint(*output)) for _ in range(num)]


def sample(trace: str, seed: int = 1) -> list[Length]:
    """512 rows of a real trace (azure_conv, sharegpt_8k, arxiv_4k), in its order; seeds other than 1 shuffle them."""
    path = Path(__file__).parent / "data" / "lengths.csv"
    with path.open(encoding="ascii", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["trace"] == trace]
    assert rows, f"no sample of {trace}"
    if seed != 1:
        random.Random(seed).shuffle(rows)
    return [(int(row["input_tokens"]), int(row["output_tokens"])) for row in rows]
