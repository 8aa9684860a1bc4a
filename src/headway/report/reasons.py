"""Why requests were refused or failed, in the words of who refused them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from headway.report.grid import Cell, Grid
from headway.report.record import Outcome, RequestRecord

MOST_REASONS = 8
_NUMBER = re.compile(r"\d+(?:[.,]\d+)*")
_MOST_CHARS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """Why `num_requests` ended so, as the first of them was told; the others may differ in numbers."""

    outcome: Outcome
    status: int | None
    words: str
    num_requests: int


def reasons_of(requests: Iterable[RequestRecord]) -> list[Reason]:
    """All reasons of the whole run, the most frequent first. What differs in numbers alone is one reason."""
    first: dict[tuple[Outcome, int | None, str], str] = {}
    counts: Counter[tuple[Outcome, int | None, str]] = Counter()
    for request in requests:
        if request.outcome in (Outcome.REFUSED, Outcome.FAILED):
            words = _printable(request.reason)
            key = (request.outcome, request.status, _NUMBER.sub("N", words))
            first.setdefault(key, words)
            counts[key] += 1
    return [
        Reason(outcome=key[0], status=key[1], words=first[key], num_requests=num) for key, num in counts.most_common()
    ]


def reason_table(requests: Iterable[RequestRecord]) -> Grid | None:
    """The most frequent reasons; None where nothing was refused and nothing failed."""
    found = reasons_of(requests)
    if not found:
        return None
    rows: list[list[Cell]] = [
        [
            one.words or "(nothing was said)",
            one.outcome.value,
            "-" if one.status is None else str(one.status),
            one.num_requests,
        ]
        for one in found[:MOST_REASONS]
    ]
    if left_out := found[MOST_REASONS:]:
        rows.append([f"{len(left_out)} more reasons", "", "", sum(one.num_requests for one in left_out)])
    return Grid(
        title="Why requests were refused or failed",
        columns=["what the first of them was told", "outcome", "status", "whole run"],
        rows=rows,
        note="What differs in numbers alone is counted together.",
    )


def _printable(text: str) -> str:
    """A server's words on one line of a terminal, without what would move its cursor."""
    return "".join(char if char.isprintable() else " " for char in " ".join(text.split()))[:_MOST_CHARS]
