"""How long outputs get: learnt online, per tenant and size of max_tokens."""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import deque
from itertools import accumulate

from headway.core import Request, Sequence

COLD_SHARE = 0.5
NUM_KEPT = 128
MIN_SEEN = 8
MAX_CLASSES = 4096


class _Sample:
    """The latest output lengths of one class, sorted, with suffix sums to answer in O(log n)."""

    def __init__(self) -> None:
        self._recent: deque[int] = deque()
        self._sorted: list[int] = []
        self._sums: list[float] = []
        self._squares: list[float] = []

    def __len__(self) -> int:
        return len(self._sorted)

    def add(self, num_output: int) -> None:
        """Learn one length; the oldest of `NUM_KEPT` is forgotten."""
        if len(self._recent) == NUM_KEPT:
            gone = self._recent.popleft()
            del self._sorted[bisect_right(self._sorted, gone) - 1]
        self._recent.append(num_output)
        insort(self._sorted, num_output)
        self._sums = list(accumulate(reversed(self._sorted), initial=0.0))
        self._squares = list(accumulate((float(n * n) for n in reversed(self._sorted)), initial=0.0))

    def beyond(self, num_output: int) -> tuple[float, float] | None:
        """Mean and variance of the lengths above `num_output`; None when none was seen."""
        count = len(self._sorted) - bisect_right(self._sorted, num_output)
        if not count:
            return None
        mean = self._sums[count] / count
        return mean, max(0.0, self._squares[count] / count - mean * mean)


class OutputLengths:
    """Expected remaining output of sequences, given that they have gone so far already.

    A class is (tenant, power of two of max_output). Until it has `MIN_SEEN` samples, `COLD_SHARE` of
    max_output is assumed, with a wide spread. A length given with the request (`predicted`) is believed.
    """

    def __init__(self) -> None:
        self._classes: dict[tuple[str, int], _Sample] = {}

    def learn(self, request: Request, num_output: int) -> None:
        """A choice of this request ended by itself after so many tokens."""
        key = _class_of(request)
        if key not in self._classes and len(self._classes) >= MAX_CLASSES:
            self._classes.pop(next(iter(self._classes)))
        self._classes.setdefault(key, _Sample()).add(num_output)

    def remaining(self, seq: Sequence) -> tuple[float, float]:
        """Mean and variance of the tokens that a sequence will still emit; at most what it may."""
        request, num_output = seq.request, seq.num_output
        most = float(request.max_output - num_output)
        if request.predicted is not None:
            return min(most, max(1.0, float(request.predicted - num_output))), 0.0
        sample = self._classes.get(_class_of(request))
        if sample is None or len(sample) < MIN_SEEN:
            mean = max(1.0, COLD_SHARE * request.max_output - num_output)
            return min(most, mean), (0.25 * request.max_output) ** 2
        found = sample.beyond(num_output)
        if found is None:  # longer than all that were seen: it may go on for a good while
            mean = min(most, 0.5 * num_output)
            return mean, mean * mean
        mean, variance = found
        return min(most, max(1.0, mean - num_output)), variance


def _class_of(request: Request) -> tuple[str, int]:
    return request.tenant, request.max_output.bit_length()
