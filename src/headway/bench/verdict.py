"""Whether `headway` holds what the project claims of it, in sentences that are true or false."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from headway.bench.score import Score

OURS = "headway"
MARGIN = 0.03
NEAR = 0.10


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A sentence about the comparison, and whether it came out true."""

    text: str
    holds: bool


def claims(middles: Mapping[str, Score]) -> list[Claim]:
    """The claims at one rate; none where `headway` did not run, answered nothing, or has no match.

    A policy that left more requests unanswered had less to do, and is no match.
    """
    ours = middles.get(OURS)
    if ours is None or not ours.output_throughput:
        return []
    middles = {policy: score for policy, score in middles.items() if score.num_failed <= ours.num_failed}
    others = {policy: score for policy, score in middles.items() if policy != OURS}
    if not others:
        return []
    better = [
        policy
        for policy, score in others.items()
        if score.output_throughput > ours.output_throughput * (1 + MARGIN)
        and score.itl_p99_ms < ours.itl_p99_ms * (1 - MARGIN)
    ]
    fastest = max(score.output_throughput for score in middles.values())
    near = {policy: score for policy, score in others.items() if score.output_throughput >= fastest * (1 - NEAR)}
    is_near = ours.output_throughput >= fastest * (1 - NEAR)
    lower_itl = [policy for policy, score in near.items() if score.itl_p99_ms < ours.itl_p99_ms]
    lower_ttft = [policy for policy, score in near.items() if score.ttft_p95_ms < ours.ttft_p95_ms]
    return [
        Claim(
            text=f"no policy beats {OURS} by more than 3 % on throughput and on P99 ITL{_but(better)}", holds=not better
        ),
        Claim(text=f"{OURS} is within 10 % of the best throughput", holds=is_near),
        Claim(
            text=f"among policies within 10 % of the best throughput, its P99 ITL is the lowest{_but(lower_itl)}",
            holds=is_near and not lower_itl,
        ),
        Claim(
            text=f"among policies within 10 % of the best throughput, its P95 TTFT is the lowest{_but(lower_ttft)}",
            holds=is_near and not lower_ttft,
        ),
    ]


def _but(policies: list[str]) -> str:
    return f" (not so: {', '.join(sorted(policies))})" if policies else ""
