"""The `lengths` table."""

from __future__ import annotations

from headway.workload.context import Context
from headway.workload.laws import TOKENS, read_lengths
from headway.workload.pairs import Alongside, Independent, Pairs, Recorded
from headway.workload.rules import choice, number, text, whole
from headway.workload.table import Table
from headway.workload.texts import Texts
from headway.workload.traces import Trace, read_trace

SCALE = number(1e-3, 1e3)
LIMIT = whole(1, 100_000_000)


def read_pairs(table: Table, context: Context, texts: Texts | None) -> tuple[Pairs | None, int | None]:
    """The law of lengths and the `max_output` that clients tell. Raises `BadSetting`.

    Where `texts` are sent whole, they are as long as they are, and the table is about outputs alone.
    """
    inner = table.table("lengths")
    if inner is None:
        return None, None
    max_output = inner.take("max_output", TOKENS)
    pairs: Pairs
    if texts is not None and texts.fit == "whole":
        pairs = Alongside(prompts=_count(table, context, texts), output=read_lengths(inner, "output"))
    elif "trace" in inner:
        pairs = _recorded(inner, context)
    else:
        pairs = Independent(prompt=read_lengths(inner, "prompt"), output=read_lengths(inner, "output"))
    inner.done()
    return pairs, max_output


def read_file(table: Table, key: str, context: Context) -> Trace:
    """The trace whose file the field names, `limit` rows of it if that is given. Raises `BadSetting`."""
    limit = table.take("limit", LIMIT)
    return read_trace(context.folder / table.need(key, text), limit=limit)


def _recorded(table: Table, context: Context) -> Recorded:
    trace = read_file(table, "trace", context)
    return Recorded(
        prompts=[row.num_prompt for row in trace.rows],
        outputs=[row.num_output for row in trace.rows],
        order=table.take("order", choice("drawn", "shuffled", "recorded")) or "drawn",
        prompt_scale=table.take("prompt_scale", SCALE) or 1.0,
        output_scale=table.take("output_scale", SCALE) or 1.0,
    )


def _count(table: Table, context: Context, texts: Texts) -> list[int]:
    if context.count_tokens is None:
        raise table.error("prompts", 'with fit = "whole" need the target\'s tokenizer; give one, or use fit = "exact"')
    return [max(1, context.count_tokens(prompt)) for prompt in texts.read()]
