"""The most memory that the running sequences will need at once, before they need it."""

from __future__ import annotations

import math
from collections.abc import Iterable
from itertools import accumulate
from statistics import NormalDist

_SUREST = 1.0 - 2.0**-53
"""The largest share below 1: a smaller risk than what is left has no quantile of its own."""


def peak_tokens(entries: Iterable[tuple[float, float, float]], overflow: float) -> float:
    """KV tokens held at the peak, exceeded with a probability of about `overflow`.

    `entries` are (held now, mean remaining, variance of remaining) per sequence. With certain lengths the
    peak lies where some sequence ends: when the i-th longest ends, the i longest still hold what they have
    now plus its remainder each (LightLLM's estimate, ALGORITHMS §15). The spread of the sum is added as for
    independent lengths.
    """
    ordered = sorted(entries, key=lambda entry: -entry[1])
    held = accumulate(entry[0] for entry in ordered)
    spread = accumulate(entry[2] for entry in ordered)
    quantile = NormalDist().inv_cdf(min(1.0 - overflow, _SUREST))
    peaks = (
        all_held + count * left + quantile * math.sqrt(variance)
        for count, ((_, left, _), all_held, variance) in enumerate(zip(ordered, held, spread, strict=True), start=1)
    )
    return max(peaks, default=0.0)
