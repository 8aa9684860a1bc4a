"""What a client sent: frozen, and the same for all its choices."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum, StrEnum

from headway.core.sampling import SamplingParams


class FinishReason(StrEnum):
    """Why a choice ended."""

    STOP = "stop"  # end-of-text token, stop token or stop string
    LENGTH = "length"  # max_tokens or the context's end
    ABORT = "abort"  # the client left, or the server shut down
    ERROR = "error"  # the executor failed in a step of this sequence
    DEADLINE = "deadline"  # the request's own time was over


class Cause(StrEnum):
    """Why a request was refused."""

    QUEUE_FULL = "queue_full"  # as many requests wait as may
    TOKENS = "tokens"  # as many prompt tokens wait as may
    CONCURRENCY = "concurrency"  # as many requests are inside as may be
    KV = "kv"  # the memory is promised to those who wait
    TENANT_LIMIT = "tenant_limit"  # the caller's own limit
    TIMEOUT = "timeout"  # it waited as long as anybody may
    DEADLINE = "deadline"  # its own deadline cannot be met
    DRAINING = "draining"  # nobody new is taken
    SLO = "slo"  # what was promised to others would break
    POLICY = "policy"  # the scheduling policy gave it up


class Tier(IntEnum):
    """How urgent a request is beside others of its tenant; lower is served earlier."""

    PRIORITY = 0
    DEFAULT = 1
    FLEX = 2  # takes what the others leave


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One accepted request; owns `params.n` sequences.

    `arrival_s` is on the engine's clock. `max_output` bounds the output and is what admission believes.
    `priority`: lower is served earlier within a `tier`, where the policy knows priorities. Requests with different
    `cache_salt` never share cached blocks. `kv_guaranteed` and `kv_most` are its tenant's shares of all blocks.
    `predicted` is an expected output length, `deadline_s` a moment on the engine's clock, `ttft_s` a target in
    seconds; None where nothing was said. `traceparent` names the trace that it belongs to (W3C), if it does.
    """

    id: str
    prompt_ids: tuple[int, ...]
    max_output: int
    arrival_s: float = 0.0
    params: SamplingParams = field(default_factory=SamplingParams)
    eos_ids: frozenset[int] = frozenset()
    priority: int = 0
    tier: Tier = Tier.DEFAULT
    cache_salt: str = ""
    tenant: str = ""
    weight: float = 1.0
    kv_guaranteed: float = 0.0
    kv_most: float = 1.0
    deadline_s: float | None = None
    ttft_s: float | None = None
    predicted: int | None = None
    traceparent: str = ""

    def __post_init__(self) -> None:
        """A request has a prompt and room for output: the caller checked both."""
        assert self.prompt_ids, f"request {self.id} has an empty prompt"
        assert self.max_output >= 1, f"request {self.id} may not produce anything"

    @property
    def num_prompt(self) -> int:
        """Tokens of the prompt."""
        return len(self.prompt_ids)

    @property
    def max_total(self) -> int:
        """Most tokens that one of its sequences can hold: prompt + output."""
        return len(self.prompt_ids) + self.max_output
