"""The `sessions` table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headway.workload.context import Context
from headway.workload.durations import Durations
from headway.workload.laws import TOKENS, read_durations, read_lengths
from headway.workload.lengths import Lengths
from headway.workload.pairs import Pairs
from headway.workload.rules import number
from headway.workload.sessions import Conversations, MadeUp, Remembered, SessionRule, Turn, recorded_turns
from headway.workload.spec_lengths import read_file
from headway.workload.table import Table


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionPlan:
    """A session rule that waits for the lengths of its turns. `recorded` conversations bring their own."""

    turns: Lengths | None = None
    recorded: Sequence[Sequence[Turn]] = ()
    think: Durations | None = None
    max_context: int | None = None
    tool_share: float = 0.0
    tool_tokens: Lengths | None = None

    def rule(self, pairs: Pairs) -> SessionRule:
        """The rule with turns of lengths `pairs`."""
        conversations: Conversations = Remembered(recorded=self.recorded)
        if self.turns is not None:
            conversations = MadeUp(
                turns=self.turns, pairs=pairs, tool_share=self.tool_share, tool_tokens=self.tool_tokens
            )
        return SessionRule(conversations=conversations, think=self.think, max_context=self.max_context)


def read_sessions(table: Table, context: Context) -> SessionPlan | None:
    """The `sessions` table. Raises `BadSetting`."""
    inner = table.table("sessions")
    if inner is None:
        return None
    recorded: list[list[Turn]] = []
    if "trace" in inner:
        trace = read_file(inner, "trace", context)
        if not trace.has_sessions:
            raise inner.error("trace", "holds no sessions: it has no column session or conversation")
        recorded = recorded_turns(trace)
    tools = inner.table("tools")
    plan = SessionPlan(
        turns=None if recorded else read_lengths(inner, "turns"),
        recorded=recorded,
        think=read_durations(inner, "think_s"),
        max_context=inner.take("max_context", TOKENS),
        tool_share=tools.need("share", number(0, 1)) if tools else 0.0,
        tool_tokens=read_lengths(tools, "tokens") if tools else None,
    )
    if tools:
        tools.done()
    inner.done()
    return plan
