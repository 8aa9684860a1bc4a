"""The `lengths` table."""

from __future__ import annotations

import functools
from collections.abc import Callable

from headway.workload.context import Context
from headway.workload.laws import TOKENS, read_lengths
from headway.workload.pairs import Alongside, Independent, Pairs, Recorded, Spoken
from headway.workload.rules import choice, number, text, whole
from headway.workload.table import Table
from headway.workload.texts import Texts
from headway.workload.traces import Trace, read_trace

SCALE = number(1e-3, 1e3)
LIMIT = whole(1, 100_000_000)


def read_pairs(table: Table, context: Context, texts: Texts | None) -> tuple[Pairs | None, int | None]:
    """The law of lengths and the `max_output` that clients tell. Raises `BadSetting`.

    Where `texts` are sent whole, they are as long as they are, and the table is about outputs alone; without any,
    outputs are as long as the answers that the texts had.
    """
    inner = table.table("lengths")
    whole_texts = texts if texts is not None and texts.fit == "whole" else None
    if inner is None:
        return None if whole_texts is None else _spoken(table, context, whole_texts), None
    max_output = inner.take("max_output", TOKENS)
    pairs: Pairs
    if whole_texts is not None:
        spoken = None if "output" in inner else _spoken(table, context, whole_texts)
        pairs = spoken or _alongside(table, inner, context, whole_texts)
    elif "trace" in inner:
        pairs = _recorded(inner, context)
    else:
        pairs = Independent(prompt=read_lengths(inner, "prompt"), output=read_lengths(inner, "output"))
    inner.done()
    return pairs, max_output


def read_file(table: Table, key: str, context: Context) -> Trace:
    """The trace whose file the field names, `limit` rows of it if that is given. Raises `BadSetting`."""
    limit = table.take("limit", LIMIT)
    trace = read_trace(context.folder / table.need(key, text), limit=limit)
    context.skipped[trace.path] = trace.num_skipped
    return trace


def _recorded(table: Table, context: Context) -> Recorded:
    trace = read_file(table, "trace", context)
    return Recorded(
        prompts=[row.num_prompt for row in trace.rows],
        outputs=[row.num_output for row in trace.rows],
        order=table.take("order", choice("drawn", "shuffled", "recorded")) or "drawn",
        prompt_scale=table.take("prompt_scale", SCALE) or 1.0,
        output_scale=table.take("output_scale", SCALE) or 1.0,
    )


def _spoken(table: Table, context: Context, texts: Texts) -> Spoken | None:
    """None where the file has no answers."""
    answers = texts.answers()
    if answers is None:
        return None
    exchanges = list(zip(texts.read(), answers, strict=True))
    return Spoken(exchanges=exchanges, count_tokens=functools.cache(_counter(table, context)))


def _alongside(table: Table, lengths: Table, context: Context, texts: Texts) -> Alongside:
    count = _counter(table, context)
    prompts = [max(1, count(prompt)) for prompt in texts.read()]
    return Alongside(prompts=prompts, output=read_lengths(lengths, "output"))


def _counter(table: Table, context: Context) -> Callable[[str], int]:
    if context.count_tokens is None:
        raise table.error("prompts", 'with fit = "whole" need the target\'s tokenizer; give one, or use fit = "exact"')
    return context.count_tokens
