"""Reading what a level of a specification says: the top, a class or a tenant."""

from __future__ import annotations

import os

from headway.workload.context import Context
from headway.workload.laws import POSITIVE_S
from headway.workload.rules import number, text, whole
from headway.workload.settings import Settings, Who
from headway.workload.spec_habits import read_behaviour, read_slo
from headway.workload.spec_lengths import read_pairs
from headway.workload.spec_prompts import read_prompts
from headway.workload.spec_sessions import read_sessions
from headway.workload.table import Table


def read_settings(table: Table, context: Context) -> Settings:
    """The shared fields of one level. Raises `BadSetting`."""
    prompts = read_prompts(table, context)
    pairs, max_output = read_pairs(table, context, prompts.texts)
    return Settings(
        pairs=pairs,
        max_output=max_output,
        prefix_block=prompts.prefix_block,
        system=prompts.system,
        texts=prompts.texts,
        sessions=read_sessions(table, context),
        behaviour=read_behaviour(table),
        slo=read_slo(table),
        priority=table.take("priority", whole(-(2**31), 2**31)),
        deadline_s=table.take("deadline_s", POSITIVE_S),
    )


def read_who(table: Table, context: Context) -> Who:
    """A class or tenant; its arrivals are read by the caller. Raises `BadSetting`."""
    return Who(
        name=table.need("name", text),
        share=_or(table.take("share", number(1e-9, 1e9)), 1.0),
        weight=_or(table.take("weight", number(1e-6, 1e6)), 1.0),
        key=_read_key(table),
        settings=read_settings(table, context),
    )


def _read_key(table: Table) -> str:
    """A tenant's API key, given in place or as the name of an environment variable."""
    key, variable = table.take("key", text), table.take("key_env", text)
    if variable is not None and variable not in os.environ:
        raise table.error("key_env", f"names the environment variable {variable}, which is not set")
    key = (key or "") if variable is None else os.environ[variable]
    if key and not (key.isascii() and key.isprintable()):
        raise table.error(
            "key" if variable is None else "key_env",
            "gives a key that no HTTP header carries; it must be printable ASCII",
        )
    return key


def _or(value: float | None, default: float) -> float:
    return default if value is None else value
