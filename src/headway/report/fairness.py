"""How evenly tenants are served."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np

from headway.report.record import RequestRecord
from headway.report.window import Window, token_times

NUM_BINS = 400


def jain(amounts: Sequence[float]) -> float:
    """Jain's index (Σx)² ÷ (n·Σx²): 1 where all have the same, 1/n where one has all. Not a number for nothing."""
    values = np.asarray(amounts, np.float64)
    total = float(np.square(values).sum())
    return float(values.sum() ** 2 / (len(values) * total)) if total else float("nan")


def service_gap(groups: Mapping[str, Sequence[RequestRecord]], window: Window) -> float:
    """Largest difference in weighted output tokens between two tenants over a time in which both had work.

    Taken on a grid of 400 intervals: for each pair, the widest swing of the difference of their cumulated service,
    counted only where both had a request in flight. The bound that VTC promises is on this quantity (Sheng et al.,
    OSDI 2024, theorem 4.4).
    """
    edges = np.linspace(window.begin_s, window.end_s, NUM_BINS + 1)
    served, busy = [], []
    for requests in groups.values():
        weight = requests[0].weight if requests else 1.0
        served.append(np.histogram(token_times(requests), edges)[0] / weight)
        begins = np.array([r.intended_s for r in requests])
        ends = np.array([r.end_s for r in requests])
        busy.append(np.array([bool(((begins < high) & (ends > low)).any()) for low, high in pairwise(edges)]))
    widest = 0.0
    for one in range(len(served)):
        for other in range(one):
            both = busy[one] & busy[other]
            swing = np.concatenate([[0.0], np.cumsum((served[one] - served[other]) * both)])
            widest = max(widest, float(swing.max() - swing.min()))
    return widest
