"""Least squares with coefficients that may not be negative."""

from __future__ import annotations

from collections.abc import Sequence

Matrix = list[list[float]]
_TINY = 1e-12


def solve(gram: Matrix, moments: Sequence[float]) -> list[float]:
    """The x ≥ 0 that is least in xᵀ·gram·x − 2·moments·x: Lawson and Hanson's active sets on the normal equations.

    `gram` is symmetric with a diagonal above 0. Terms are scaled to a unit diagonal, so that seconds per step and
    seconds per token of context are judged alike.
    """
    size = len(moments)
    scale = [max(gram[k][k], _TINY**2) ** -0.5 for k in range(size)]
    scaled = [[gram[i][k] * scale[i] * scale[k] for k in range(size)] for i in range(size)]
    target = [moments[k] * scale[k] for k in range(size)]
    found = [0.0] * size
    free: set[int] = set()
    for _ in range(10 * size):
        slopes = [target[i] - sum(scaled[i][k] * found[k] for k in free) for i in range(size)]
        outside = [k for k in range(size) if k not in free]
        best = max(outside, key=lambda k: slopes[k], default=None)
        if best is None or slopes[best] <= 1e-9 * max(map(abs, target)):
            break
        free.add(best)
        _settle(scaled, target, found, free)
    return [value * factor for value, factor in zip(found, scale, strict=True)]


def _settle(gram: Matrix, target: Sequence[float], found: list[float], free: set[int]) -> None:
    """Move to the best point over the free terms, giving up those that would turn negative on the way."""
    while free:
        order = sorted(free)
        wanted = dict(
            zip(order, _gauss([[gram[i][k] for k in order] for i in order], [target[k] for k in order]), strict=True)
        )
        blocked = [k for k in order if wanted[k] <= 0.0]
        if not blocked:
            for k in order:
                found[k] = wanted[k]
            return
        way = min(found[k] / (found[k] - wanted[k]) if found[k] > wanted[k] else 0.0 for k in blocked)
        for k in order:
            found[k] += way * (wanted[k] - found[k])
        for k in [k for k in blocked if found[k] <= _TINY]:
            found[k] = 0.0
            free.discard(k)


def _gauss(matrix: Matrix, target: list[float]) -> list[float]:
    """The solution of a symmetric system, with a trace of the diagonal added so that there is one."""
    size = len(target)
    rows = [[*row, value] for row, value in zip(matrix, target, strict=True)]
    for k in range(size):
        rows[k][k] += _TINY
    for k in range(size):
        pivot = max(range(k, size), key=lambda i: abs(rows[i][k]))
        rows[k], rows[pivot] = rows[pivot], rows[k]
        for i in range(k + 1, size):
            factor = rows[i][k] / rows[k][k]
            for j in range(k, size + 1):
                rows[i][j] -= factor * rows[k][j]
    found = [0.0] * size
    for k in reversed(range(size)):
        found[k] = (rows[k][size] - sum(rows[k][j] * found[j] for j in range(k + 1, size))) / rows[k][k]
    return found
