"""Arrival processes, length laws and durations by name, with the range of each parameter.

A law is written as a table (`{law = "gamma", rate = 4, cv = 2}`), as a text of the same (`"gamma:rate=4,cv=2"`), or,
where one number says it all, as that number.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from headway.workload.arrivals import Arrivals, AtOnce, Constant, Gamma, OnOff, Poisson, Ramp, Weibull
from headway.workload.durations import (
    ConstantSeconds,
    Durations,
    ExponentialSeconds,
    LogNormalSeconds,
    UniformSeconds,
)
from headway.workload.lengths import Clamped, Empirical, Fixed, Lengths, LogNormal, Normal, Truncated, Uniform, Zipf
from headway.workload.rules import Rule, choice, number, span, tokens, whole
from headway.workload.table import Table

T = TypeVar("T")
MAX_TOKENS = 1 << 24
MAX_S = 1e7

RATE = number(1e-6, 1e6)
CV = number(0.01, 100)
TOKENS = whole(1, MAX_TOKENS)
MEAN = number(1, MAX_TOKENS)
SECONDS = number(0, MAX_S)
POSITIVE_S = number(1e-6, MAX_S)


@dataclass(frozen=True, slots=True, kw_only=True)
class Law(Generic[T]):
    """How to make one law: parameters that must be given, and those that may be."""

    make: Callable[..., T]
    needs: Mapping[str, Rule[object]] = field(default_factory=dict)
    takes: Mapping[str, Rule[object]] = field(default_factory=dict)


ARRIVALS: Mapping[str, Law[Arrivals]] = {
    "poisson": Law(make=Poisson, needs={"rate": RATE}),
    "constant": Law(make=Constant, needs={"rate": RATE}),
    "gamma": Law(make=Gamma, needs={"rate": RATE, "cv": CV}),
    "weibull": Law(make=Weibull, needs={"rate": RATE, "cv": CV}),
    "on_off": Law(
        make=OnOff,
        needs={"on_rate": RATE, "on_s": POSITIVE_S, "off_s": POSITIVE_S},
        takes={"off_rate": number(0, 1e6), "phases": choice("exponential", "fixed")},
    ),
    "ramp": Law(
        make=Ramp,
        needs={"start_rate": number(0, 1e6), "end_rate": number(0, 1e6), "ramp_s": POSITIVE_S},
        takes={"shape": choice("linear", "exponential")},
    ),
    "at_once": Law(make=AtOnce),
}

LENGTHS: Mapping[str, Law[Lengths]] = {
    "fixed": Law(make=Fixed, needs={"value": TOKENS}),
    "uniform": Law(make=Uniform, needs={"low": TOKENS, "high": TOKENS}),
    "normal": Law(make=Normal, needs={"mean": MEAN, "std": number(0, MAX_TOKENS)}),
    "lognormal": Law(make=LogNormal, needs={"mean": MEAN, "cv": CV}),
    "empirical": Law(make=Empirical, needs={"values": tokens(1, MAX_TOKENS)}),
    "zipf": Law(make=Zipf, needs={"exponent": number(0, 10), "low": TOKENS, "high": TOKENS}),
}

DURATIONS: Mapping[str, Law[Durations]] = {
    "constant": Law(make=ConstantSeconds, needs={"value": SECONDS}),
    "exponential": Law(make=ExponentialSeconds, needs={"mean": POSITIVE_S}),
    "uniform": Law(make=UniformSeconds, needs={"low": SECONDS, "high": SECONDS}),
    "lognormal": Law(make=LogNormalSeconds, needs={"mean": POSITIVE_S, "cv": CV}),
}


def expand(value: object, name_key: str) -> Mapping[str, object] | None:
    """`"gamma:rate=4,cv=2"` as a table whose `name_key` is "gamma"; a table as it is; None for anything else."""
    if isinstance(value, Mapping):
        return value
    if not isinstance(value, str):
        return None
    name, _, rest = value.partition(":")
    content: dict[str, object] = {name_key: name.strip()}
    for part in filter(None, rest.split(",")):
        key, equals, word = part.partition("=")
        if not equals:
            return None
        content[key.strip()] = parse_word(word.strip())
    return content


def parse_word(word: str) -> object:
    """A number where the text is one, else the text."""
    for kind in (int, float):
        try:
            value = kind(word)
        except ValueError:
            continue
        return value if math.isfinite(value) else word
    return word


def read_law(table: Table, laws: Mapping[str, Law[T]], name_key: str, also: tuple[str, ...] = ()) -> T:
    """The law that a table describes; fields beside the law's are left to the caller. Raises `BadSetting`.

    `also` names what else may stand there, which the caller has dealt with.
    """
    name = table.need(name_key, choice(*laws, *also))
    law = laws[name]
    values = {key: table.need(key, rule) for key, rule in law.needs.items()}
    values |= {key: value for key, rule in law.takes.items() if (value := table.take(key, rule)) is not None}
    _check_together(table, values)
    return law.make(**values)


def _check_together(table: Table, values: Mapping[str, object]) -> None:
    low, high = values.get("low"), values.get("high")
    if isinstance(low, int | float) and isinstance(high, int | float) and low > high:
        raise table.error("low", f"is {low:g}; it must be at most high, which is {high:g}")
    for key in ("start_rate", "end_rate"):
        if values.get("shape") == "exponential" and values.get(key) == 0:
            raise table.error(key, "is 0; it must be above 0 in an exponential ramp")
    if values.get("start_rate") == 0 and values.get("end_rate") == 0:
        raise table.error("end_rate", "is 0 and so is start_rate; one of them must be above 0")


def read_lengths(table: Table, key: str) -> Lengths:
    """The length law under `key`. Raises `BadSetting`, also where it is missing."""
    value = table.raw(key)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return Fixed(value=table.need(key, TOKENS))
    inner = _inner(
        table, key, value, f'a number of tokens, or a law such as "lognormal:mean=500,cv=1"; {_names(LENGTHS)}'
    )
    law = read_law(inner, LENGTHS, "law")
    truncate, clamp = inner.take("truncate", span(1, MAX_TOKENS)), inner.take("clamp", span(1, MAX_TOKENS))
    inner.done()
    if truncate:
        law = Truncated(law=law, low=truncate[0], high=truncate[1])
    return Clamped(law=law, low=clamp[0], high=clamp[1]) if clamp else law


def read_durations(table: Table, key: str) -> Durations | None:
    """The law of seconds under `key`, None where it is not given. Raises `BadSetting`."""
    value = table.raw(key)
    if value is None:
        return None
    if isinstance(value, int | float) and not isinstance(value, bool):
        return ConstantSeconds(value=table.need(key, SECONDS))
    inner = _inner(
        table, key, value, f'a number of seconds, or a law such as "exponential:mean=5"; {_names(DURATIONS)}'
    )
    law = read_law(inner, DURATIONS, "law")
    inner.done()
    return law


def _inner(table: Table, key: str, value: object, allowed: str) -> Table:
    content = expand(value, "law")
    if content is None:
        if value is None:
            raise table.missing(key, f"is missing; it must be {allowed}")
        raise table.error(key, f"is {value!r}; it must be {allowed}")
    return table.inner(key, content)


def _names(laws: Mapping[str, Law[T]]) -> str:
    return f"laws: {', '.join(laws)}"
