"""The traffic that settings are tried on: as it is, faster or slower, and with all chance taken out."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from headway.errors import BadSetting
from headway.workload import WorkItem, Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """A fixed list of requests. `scales` is false where clients wait for their answers: there is no rate to change."""

    items: Sequence[WorkItem]
    scales: bool = True
    weights: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def of(cls, workload: Workload, num_requests: int) -> Traffic:
        """The first requests of a workload. Raises `BadSetting` where there are none."""
        items = list(itertools.islice(workload.items(), num_requests))
        if not items:
            raise BadSetting("the workload has no requests; there is nothing to tune for")
        moments = {item.at_s for item in items if item.at_s is not None}
        scales = len(moments) > 1 and not workload.is_closed_loop
        return cls(items=items, scales=scales, weights=workload.weights)

    @property
    def rate(self) -> float:
        """Requests per second, as they are sent; not a number in a closed loop."""
        last_s = max((item.at_s or 0.0 for item in self.items), default=0.0)
        return len(self.items) / last_s if self.scales and last_s else float("nan")

    def at(self, factor: float) -> Traffic:
        """The same requests, `factor` times as fast."""
        if factor == 1.0:
            return self
        assert self.scales, "a closed loop has no rate"
        items = [item if item.at_s is None else replace(item, at_s=item.at_s / factor) for item in self.items]
        return replace(self, items=items)

    def steady(self) -> Traffic:
        """As many requests of the mean lengths in even steps: no bursts, no long ones, nobody who gives up."""
        num_prompt = _mean([item.num_prompt for item in self.items])
        num_output = _mean([item.num_output for item in self.items])
        gap_s = 1.0 / self.rate if self.scales else 0.0
        items = [
            replace(
                item,
                num_prompt=num_prompt,
                num_output=num_output,
                max_output=num_output,
                at_s=number * gap_s if self.scales else item.at_s,
                prefix=(),
                session="" if self.scales else item.session,
                cancel_s=None,
                cancel_tokens=None,
                deadline_s=None,
            )
            for number, item in enumerate(self.items)
        ]
        return replace(self, items=items)

    def prompt_at(self, share: float) -> int:
        """The prompt length that this share of the requests does not exceed."""
        lengths = sorted(item.num_prompt for item in self.items)
        return lengths[min(len(lengths) - 1, int(share * len(lengths)))]


def _mean(counts: Sequence[int]) -> int:
    return max(1, round(sum(counts) / len(counts)))
