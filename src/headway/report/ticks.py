"""Where an axis is labelled."""

from __future__ import annotations

import math


def linear_ticks(low: float, high: float, count: int = 6) -> list[float]:
    """About `count` round values within [low, high], evenly apart: steps of 1, 2 or 5 times a power of ten."""
    if not high > low:
        return [low]
    rough = (high - low) / count
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * 0.999)
    first = math.ceil(low / step - 1e-9)
    return [k * step for k in range(first, math.floor(high / step + 1e-9) + 1)]


def log_ticks(low: float, high: float) -> list[float]:
    """Powers of ten within [low, high]; with 2 and 5 times them where there are few."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    factors = (1, 2, 5) if last - first <= 3 else (1,)
    return [
        value
        for power in range(first, last + 1)
        for factor in factors
        if low * 0.999 <= (value := factor * 10.0**power) <= high * 1.001
    ]


def tick_label(value: float) -> str:
    """A tick's text: 1500 as 1.5k, 2000000 as 2M."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:g}{letter}"
    return f"{value:.6g}" if abs(value) >= 1e-9 else "0"
