"""Who answers: a server, an engine in this process, or anything else that streams tokens."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from typing import Protocol

from headway.errors import HeadwayError
from headway.report import StepSample


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One request as its target gets it.

    `prompt` is a text or token ids, `num_prompt` its length as far as it is known here. `num_output` tokens are
    wanted, no more; a target that can be told makes it no fewer either. A server knows a tenant by its `key`, an engine
    in this process by name and `weight`.
    """

    id: str
    prompt: str | Sequence[int]
    num_prompt: int
    num_output: int
    priority: int = 0
    key: str = ""
    tenant: str = ""
    weight: float = 1.0
    seed: int = 0


@dataclass(slots=True)
class Opened:
    """The answer has begun: its head is here, no token yet. `connected_s` is None where a connection was reused."""

    at_s: float
    connected_s: float | None = None
    status: int | None = None


@dataclass(slots=True)
class Chunk:
    """Text or tokens that arrived together. `num_tokens` is None where the target does not say how many they are."""

    at_s: float
    text: str = ""
    num_tokens: int | None = None


@dataclass(slots=True, kw_only=True)
class Closing:
    """The end of a whole answer, with what the target told about it. `at_s` is the end of the stream."""

    at_s: float
    finish_reason: str = ""
    num_prompt: int | None = None
    num_output: int | None = None
    num_cached: int | None = None
    scheduled_s: float | None = None
    num_preemptions: int | None = None


Piece = Opened | Chunk | Closing


class Target(Protocol):
    """Something that answers. All times are its clock's, the one that the run was given."""

    async def check(self) -> None:
        """Fail early. Raises `Unreachable` or `Unauthorized` where no request could succeed."""
        ...

    def stream(self, call: Call, /) -> AsyncGenerator[Piece, None]:
        """Send a request and yield its answer; a whole one ends with `Closing`.

        Closing the iterator early gives the request up. Raises `Refused`, or `Broken` and its kinds.
        """
        ...

    def describe(self) -> dict[str, object]:
        """What answered, for the report."""
        ...

    async def counters(self) -> dict[str, float]:
        """Totals that the target tells about itself, by name; empty where it tells none."""
        ...

    def steps(self, start_s: float, /) -> list[StepSample]:
        """Steps since a moment, counted from it, as far as the target tells."""
        ...

    async def close(self) -> None:
        """Let go of connections or memory; idempotent."""
        ...


class Refused(HeadwayError):
    """Turned away before any token; another try may succeed, after `retry_after_s` if the target said so."""

    def __init__(self, message: str, *, status: int | None = None, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.status, self.retry_after_s = status, retry_after_s


class Broken(HeadwayError):
    """The answer came to nothing, or ended before it was whole."""

    def __init__(self, message: str, *, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


class Unreachable(Broken):
    """Nobody answers there."""


class Unauthorized(Broken):
    """The target wants a key, or another one."""
