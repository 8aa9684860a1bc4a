"""One request of a workload, before anybody knows who will answer it: lengths and times, no text."""

from __future__ import annotations

from dataclasses import dataclass, field

from headway.core import Slo


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkItem:
    """What a client will do.

    `at_s` is the intended moment of sending, counted from the start; None in a closed loop, where the session's
    previous answer plus `think_s` decides. `num_prompt` counts all prompt tokens. `prefix` names the blocks that the
    prompt starts with, each `prefix_block` tokens long: equal ids stand for equal tokens (Mooncake's `hash_ids`); the
    tokens behind them are the item's own. Items of one `session` follow each other by `turn`. `deadline_s` counts
    from the intended moment. A client may give up after `cancel_tokens` tokens or `cancel_s` seconds, and read
    slowly, at `read_tokens_s` tokens per second. `num_output` is how many tokens it makes the server produce;
    `max_output`, at least that, is what it tells the server. After a refusal it tries again up to `retries` times,
    waiting what Retry-After says, else `backoff_s` and twice as long each time. `text_row` is the row of the
    workload's file of prompts that this request sends; None for made-up text.
    """

    id: str
    num_prompt: int
    num_output: int
    max_output: int
    at_s: float | None = None
    prefix: tuple[int, ...] = ()
    prefix_block: int = 0
    session: str = ""
    turn: int = 0
    think_s: float = 0.0
    tenant: str = ""
    traffic_class: str = ""
    priority: int = 0
    deadline_s: float | None = None
    slo: Slo = field(default_factory=Slo)
    cancel_tokens: int | None = None
    cancel_s: float | None = None
    read_tokens_s: float | None = None
    retries: int = 0
    backoff_s: float = 1.0
    text_row: int | None = None
    seed: int = 0

    @property
    def num_prefix(self) -> int:
        """Prompt tokens that the prefix blocks cover."""
        return min(self.num_prompt, len(self.prefix) * self.prefix_block)
