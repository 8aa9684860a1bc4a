"""The `prompts` table: what prompts share, or the file they come from."""

from __future__ import annotations

from dataclasses import dataclass

from headway.workload.context import Context
from headway.workload.laws import read_lengths
from headway.workload.rules import choice, number, text, whole
from headway.workload.seeds import stream
from headway.workload.shared import SystemPrompts, mix, named
from headway.workload.streams import DEFAULT_BLOCK
from headway.workload.table import Table
from headway.workload.texts import Texts


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptPlan:
    """What a level says about its prompts."""

    prefix_block: int | None = None
    system: SystemPrompts | None = None
    texts: Texts | None = None


def read_prompts(table: Table, context: Context) -> PromptPlan:
    """The `prompts` table. Raises `BadSetting`."""
    inner = table.table("prompts")
    if inner is None:
        return PromptPlan()
    block = inner.take("prefix_block", whole(1, 1 << 16))
    plan = PromptPlan(
        prefix_block=block, system=_system(inner, block or DEFAULT_BLOCK, context.seed), texts=_texts(inner, context)
    )
    inner.done()
    if plan.system and plan.texts:
        raise inner.error("system", "does not go together with a file of prompts; remove one of them")
    return plan


def _texts(table: Table, context: Context) -> Texts | None:
    name, column = table.take("file", text), table.take("field", text)
    fit = table.take("fit", choice("exact", "whole"))
    if name is not None:
        return Texts(path=context.folder / name, field=column or "prompt", fit=fit or "exact")
    for key in ("field", "fit"):
        if key in table:
            raise table.error(key, "is about a file of prompts; name it with file")
    return None


def _system(table: Table, block: int, seed: int) -> SystemPrompts | None:
    """Prompts that many requests begin with. Rounded to whole blocks, at least one: sharing is counted in blocks."""
    inner = table.table("system")
    if inner is None:
        return None
    where = "/".join(map(str, inner.path))
    count = inner.take("count", whole(1, 100_000)) or 1
    lengths = read_lengths(inner, "tokens").draw(stream(seed, "system-lengths", where), count)
    zipf, share = inner.take("zipf", number(0, 10)), inner.take("share", number(0, 1))
    inner.done()
    return SystemPrompts(
        origin=mix(seed, named(where)),
        blocks=[max(1, round(length / block)) for length in lengths.tolist()],
        zipf=1.0 if zipf is None else zipf,
        share=1.0 if share is None else share,
    )
