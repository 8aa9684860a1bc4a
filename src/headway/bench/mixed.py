"""The workload on which policies are compared: chat-like lengths with long tails, Poisson arrivals, fixed seeds."""

from __future__ import annotations

import math
from dataclasses import dataclass

from headway.errors import BadSetting
from headway.workload import Workload, parse_workload

_Z90 = 1.2815515655446004  # P90 of the standard normal


@dataclass(frozen=True, slots=True, kw_only=True)
class Tail:
    """A log-normal law of lengths by its median and P90, drawn again above `most`."""

    median: float
    p90: float
    most: int

    def law(self) -> dict[str, object]:
        """The law in the language of workloads: σ = ln(P90 ÷ median) ÷ z₉₀. Raises `BadSetting`."""
        if not 0 < self.median < self.p90:
            raise BadSetting(
                f"the median is {self.median:g} and the P90 {self.p90:g}; the P90 must be above the median"
            )
        sigma = math.log(self.p90 / self.median) / _Z90
        variance = sigma * sigma
        mean, cv = self.median * math.exp(variance / 2), math.sqrt(math.expm1(variance))
        return {"law": "lognormal", "mean": mean, "cv": cv, "truncate": [1, self.most]}


@dataclass(frozen=True, slots=True, kw_only=True)
class MixedLoad:
    """How many requests of which lengths, whatever the rate."""

    num_requests: int = 200
    prompt_median: float = 180.0
    prompt_p90: float = 900.0
    output_median: float = 60.0
    output_p90: float = 200.0
    context: int = 2048
    seed: int = 0

    def workload(self, rate: float, repeat: int) -> Workload:
        """The same requests for all policies, others in each repeat. A `rate` of infinity sends all at once.

        Prompts take at most three quarters of the context, outputs a quarter. Raises `BadSetting`.
        """
        if self.context < 4:
            raise BadSetting(f"a sequence may have {self.context} tokens; a prompt and an answer need at least 4")
        prompt = Tail(median=self.prompt_median, p90=self.prompt_p90, most=self.context * 3 // 4)
        output = Tail(median=self.output_median, p90=self.output_p90, most=self.context // 4)
        arrivals: dict[str, object] = {"process": "at_once"}
        if math.isfinite(rate):
            arrivals = {"process": "poisson", "rate": rate}
        return parse_workload(
            {
                "name": "mixed",
                "seed": self.seed + repeat,
                "num_requests": self.num_requests,
                "arrivals": arrivals,
                "lengths": {"prompt": prompt.law(), "output": output.law()},
            }
        )
