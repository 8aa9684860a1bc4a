"""One choice of the settings that are tuned."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from headway.errors import BadSetting
from headway.sched import all_params
from headway.sim import Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """How much a step may hold. `chunk` caps one prompt's tokens of a step, `itl_ms` is the policy's target; 0: none.

    The defaults are the conservative baseline.
    """

    policy: str = "headway"
    max_num_seqs: int = 32
    max_num_batched_tokens: int = 4096
    chunk: int = 0
    itl_ms: float = 0.0
    kv_limit: float = 1.0

    def fields(self) -> dict[str, int | float]:
        """Engine settings by the names of their flags, those left out that are off."""
        found: dict[str, int | float] = {
            "max_num_seqs": self.max_num_seqs,
            "max_num_batched_tokens": self.max_num_batched_tokens,
        }
        if self.chunk:
            found["long_prefill_token_threshold"] = self.chunk
        if self.itl_ms:
            found["itl_target_ms"] = self.itl_ms
        if self.kv_limit < 1.0:
            found["kv_cache_utilization_limit"] = self.kv_limit
        return found

    def plan(self) -> Plan:
        """The same for a simulation."""
        return Plan(policy=self.policy, defaults=self.fields())

    def label(self) -> str:
        """A short name for tables."""
        parts = [f"{self.max_num_seqs} seqs", f"{self.max_num_batched_tokens} tokens"]
        parts += [f"chunk {self.chunk}"] if self.chunk else []
        parts += [f"ITL target {self.itl_ms:g} ms"] if self.itl_ms else []
        return ", ".join(parts)


def known_knobs(policy: str) -> Mapping[str, object]:
    """The policy's parameters. Raises `BadSetting` for a policy without the two that everything turns on."""
    known = all_params(policy, {})
    for name in ("max_num_seqs", "max_num_batched_tokens"):
        if name not in known:
            raise BadSetting(f"policy {policy!r} has no {name}, so there is nothing to tune; try headway or vllm")
    return known
