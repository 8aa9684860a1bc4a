"""What comes back from a step."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Logprobs:
    """Natural-log probabilities at one position: of the token there, its rank (1 = likeliest), and the likeliest."""

    logprob: float
    rank: int
    top: tuple[tuple[int, float], ...] = ()


@dataclass(slots=True)
class Token:
    """One sampled token."""

    token_id: int
    logprobs: Logprobs | None = None


@dataclass(slots=True)
class StepResult:
    """Tokens by sequence id (several per sequence under speculation) and how long the step took.

    `prompt_logprobs` holds, per sequence that asked, one entry for each row computed: the entry of row i is
    about the token at position start + i + 1; the row of the last prompt token has none.
    """

    tokens: dict[str, list[Token]] = field(default_factory=dict)
    prompt_logprobs: dict[str, list[Logprobs]] = field(default_factory=dict)
    elapsed_s: float = 0.0
