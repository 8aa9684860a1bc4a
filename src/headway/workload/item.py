"""One request of a workload, before anybody knows who will answer it: lengths and times, no text."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Slo:
    """Limits that a request must meet, in seconds; None where nothing is promised."""

    ttft_s: float | None = None
    tpot_s: float | None = None
    e2e_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkItem:
    """What a client will do.

    `at_s` is the intended moment of sending, counted from the start; None in a closed loop, where the
    session's previous answer plus `think_s` decides. `num_prompt` counts all prompt tokens. `prefix` names
    the blocks that the prompt starts with, each `prefix_block` tokens long: equal ids stand for equal tokens
    (Mooncake's `hash_ids`); the tokens behind them are the item's own. Items of one `session` follow each
    other by `turn`. A client may give up after `cancel_tokens` tokens or `cancel_s` seconds, and read slowly,
    at `read_tokens_s` tokens per second. `num_output` is how many tokens it makes the server produce;
    `max_output`, at least that, is what it tells the server.
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
    slo: Slo = Slo()
    cancel_tokens: int | None = None
    cancel_s: float | None = None
    read_tokens_s: float | None = None
    seed: int = 0

    @property
    def num_prefix(self) -> int:
        """Prompt tokens that the prefix blocks cover."""
        return min(self.num_prompt, len(self.prefix) * self.prefix_block)
