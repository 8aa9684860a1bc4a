"""What both kinds of answers have in common: their head, when to count tokens, and the contract of a `Reply`."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

from msgspec import UNSET, UnsetType

from headway.core import Tier
from headway.engine.outputs import Delta
from headway.engine.outputs import Usage as Counts
from headway.server.job import Collected
from headway.server.schema import Generate
from headway.server.wire import Usage


class UsageMode(Enum):
    """Which events of a stream carry token counts."""

    NEVER = "never"
    AT_END = "at end"  # one more event at the end; null in the others
    ALWAYS = "always"  # a running count in each event, then the one at the end


def usage_mode(body: Generate) -> UsageMode:
    """What `stream_options` ask for. An empty object asks for nothing."""
    options = body.stream_options
    if options is None or not options.include_usage:
        return UsageMode.NEVER
    return UsageMode.ALWAYS if options.continuous_usage_stats else UsageMode.AT_END


def tier_shown(body: Generate, tier: Tier) -> str | UnsetType:
    """The tier that served the request, where it named one."""
    return UNSET if body.service_tier is None else tier.name.lower()


@dataclass(slots=True, kw_only=True)
class Head:
    """Members that every document about one request repeats, and the running count of its tokens."""

    id: str
    model: str
    prompts: Sequence[Sequence[int]]
    usage_mode: UsageMode
    service_tier: str | UnsetType = UNSET
    created: int = field(default_factory=lambda: int(time.time()))
    num_output: int = 0

    @property
    def running_usage(self) -> Usage | UnsetType | None:
        """The `usage` member of an ordinary event."""
        match self.usage_mode:
            case UsageMode.NEVER:
                return UNSET
            case UsageMode.AT_END:
                return None
            case UsageMode.ALWAYS:
                num_prompt = sum(map(len, self.prompts))
                return Usage(num_prompt, self.num_output, num_prompt + self.num_output)


class Reply(Protocol):
    """How one endpoint words what the engine produced. One object per HTTP request."""

    def chunk(self, index: int, delta: Delta) -> bytes:
        """The events for one delta of choice `index`; empty when there is nothing to tell."""
        ...

    def closing(self, usage: Counts) -> bytes:
        """The events after the last chunk and before `[DONE]`."""
        ...

    def whole(self, choices: Sequence[Collected], usage: Counts) -> bytes:
        """The answer when nothing is streamed."""
        ...
