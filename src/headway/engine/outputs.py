"""What a caller of the engine receives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from headway.core import FinishReason, Logprobs


@dataclass(slots=True)
class Delta:
    """What one step added to one choice.

    `text` holds whole characters only and never a part of a stop string; it may be empty while either is
    undecided. `token_ids` and `logprobs` (empty unless asked for) are parallel. The last delta of a choice,
    and only that one, has a `finish_reason`; `stop_reason` is the stop string or stop token that ended it.
    """

    choice: int
    text: str = ""
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[Logprobs] = field(default_factory=list)
    finish_reason: FinishReason | None = None
    stop_reason: str | int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Token counts of a finished request; `num_cached` prompt tokens came from the prefix cache."""

    num_prompt: int
    num_output: int
    num_cached: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineStats:
    """A snapshot for `/load`, the log line and metrics. Tokens are totals since the start, prompts' from admission.

    `num_queued_tokens` are those of prompts that wait for their first place, `refused` counts refusals by cause,
    `guardrail_level` is 0 while all promises hold. A block is used by a sequence, cached for whoever asks next, or
    empty; `num_loosened_blocks` counts how often one lost its last user.
    """

    num_running: int = 0
    num_waiting: int = 0
    num_swapped: int = 0
    block_size: int = 0
    num_blocks: int = 0
    num_free_blocks: int = 0
    num_prompt_tokens: int = 0
    num_cached_tokens: int = 0
    num_output_tokens: int = 0
    num_preemptions: int = 0
    num_steps: int = 0
    num_queued_tokens: int = 0
    refused: Mapping[str, int] = field(default_factory=dict)
    guardrail_level: int = 0
    num_cached_blocks: int = 0
    num_used_blocks: int = 0
    num_loosened_blocks: int = 0

    @property
    def kv_usage(self) -> float:
        """Share of the blocks that running sequences hold, 0 to 1."""
        return 1.0 - self.num_free_blocks / self.num_blocks if self.num_blocks else 0.0


@dataclass(slots=True)
class Completion:
    """One finished choice of an offline request."""

    text: str
    token_ids: list[int]
    finish_reason: FinishReason
    logprobs: list[Logprobs] = field(default_factory=list)
    stop_reason: str | int | None = None


@dataclass(slots=True)
class Generation:
    """A finished request with all its choices, in order."""

    request_id: str
    prompt_ids: list[int]
    choices: list[Completion]
    usage: Usage
    prompt_logprobs: list[Logprobs] = field(default_factory=list)

    @property
    def text(self) -> str:
        """Text of the first choice."""
        return self.choices[0].text
