"""Counting values into buckets, cheaply enough for every token."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

# Edges of vLLM's metrics, so that dashboards and alerts carry over.
TTFT_S = (
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75),
    *(1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0),
)
TOKEN_S = (
    *(0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75),
    *(1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0),
)
LATENCY_S = (
    *(0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0),
    *(120.0, 240.0, 480.0, 960.0, 1920.0, 7680.0),
)
STEP_TOKENS = (1, 8, *(2**power for power in range(4, 15)))
NUM_CHOICES = (1, 2, 5, 10, 20)


def one_two_five(most: int) -> tuple[int, ...]:
    """1, 2, 5, 10, 20, … up to `most`: edges for lengths in tokens."""
    edges = [digit * 10**power for power in range(len(str(most))) for digit in (1, 2, 5)]
    return tuple(edge for edge in edges if edge <= most)


class Histogram:
    """Counts of values up to each edge. One writer; a reader takes `snapshot` under the writer's lock."""

    __slots__ = ("counts", "edges", "total")

    def __init__(self, edges: Sequence[float]) -> None:
        assert list(edges) == sorted(set(edges)), f"bucket edges must rise: {edges}"
        self.edges = tuple(edges)
        self.counts = [0] * (len(edges) + 1)
        self.total = 0.0

    def add(self, value: float) -> None:
        """Count one value. A value on an edge belongs to the bucket that ends there, as in Prometheus."""
        self.counts[bisect_left(self.edges, value)] += 1
        self.total += value

    def snapshot(self) -> tuple[list[tuple[str, float]], float]:
        """(upper edge, number of values up to it) for all buckets, the last being "+Inf"; and the sum of values."""
        buckets: list[tuple[str, float]] = []
        num_below = 0
        for edge, count in zip([*map(_written, self.edges), "+Inf"], self.counts, strict=True):
            num_below += count
            buckets.append((edge, num_below))
        return buckets, self.total


def _written(edge: float) -> str:
    return str(float(edge))
