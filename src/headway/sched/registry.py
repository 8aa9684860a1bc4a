"""Policies by name. A registry is a dict of strings; a policy is imported when it is asked for."""

from __future__ import annotations

import dataclasses
import difflib
import enum
import importlib
import math
import types
import typing
from collections.abc import Mapping
from typing import Any

from headway.errors import BadSetting
from headway.sched.asking import naming, try_out
from headway.sched.policy import Axes, Policy, Wrapper

POLICIES = {
    "deadline": "headway.sched.policies.deadline:Deadline",
    "dynamic_batch": "headway.sched.policies.dynamic_batch:DynamicBatch",
    "fastserve": "headway.sched.policies.fastserve:FastServe",
    "headway": "headway.sched.policies.headway:Headway",
    "lmdeploy": "headway.sched.policies.lmdeploy:Lmdeploy",
    "ltr": "headway.sched.policies.ltr:Ltr",
    "orca": "headway.sched.policies.orca:Orca",
    "sarathi": "headway.sched.policies.sarathi:Sarathi",
    "sarathi_serve": "headway.sched.policies.sarathi_serve:SarathiServe",
    "sglang": "headway.sched.policies.sglang:Sglang",
    "splitfuse": "headway.sched.policies.splitfuse:SplitFuse",
    "static": "headway.sched.policies.static:Static",
    "tgi": "headway.sched.policies.tgi:Tgi",
    "trtllm": "headway.sched.policies.trtllm:Trtllm",
    "vllm": "headway.sched.policies.vllm:Vllm",
    "vtc": "headway.sched.policies.vtc:Vtc",
    "vllm_v0": "headway.sched.policies.vllm_v0:VllmV0",
}


def policy_class(name: str) -> type[Policy]:
    """The class behind a policy's name, or behind `module:Class` of a user's own package.

    Raises `BadSetting` naming the known policies when there is none.
    """
    path = POLICIES.get(name, name)
    module_name, colon, class_name = path.partition(":")
    if not colon:
        near = difflib.get_close_matches(name, POLICIES, n=1)
        hint = f" (did you mean {near[0]!r}?)" if near else ""
        raise BadSetting(f"unknown policy {name!r}{hint}; known: {', '.join(sorted(POLICIES))}, or module:Class")
    try:
        found = getattr(importlib.import_module(module_name), class_name)
    except ModuleNotFoundError as error:
        where = "it must be installed, or in a folder that PYTHONPATH names"
        raise BadSetting(f"policy {name!r} cannot be loaded: {error}; {where}") from error
    except (ImportError, AttributeError, ValueError) as error:
        raise BadSetting(f"policy {name!r} cannot be loaded: {error}") from error
    except Exception as error:  # whatever a module of somebody else's does while it is imported
        raise BadSetting(f"policy {name!r} cannot be loaded: {type(error).__name__}: {error}") from error
    if not (isinstance(found, type) and issubclass(found, Policy)):
        raise BadSetting(f"policy {name!r} is not a subclass of headway.sched.Policy")
    if missing := [part for part in ("Params", "axes", "source") if not hasattr(found, part)]:
        raise BadSetting(f"policy {name!r} has no {', '.join(missing)}; docs/adding-a-policy.md shows what each is")
    _check_parts(name, found)
    return found


def _check_parts(name: str, found: type[Policy]) -> None:
    if not (isinstance(found.Params, type) and dataclasses.is_dataclass(found.Params)):
        raise BadSetting(f"policy {name!r} has Params that are no dataclass; docs/adding-a-policy.md shows one")
    if not isinstance(found.axes, Axes):
        raise BadSetting(f"policy {name!r} has axes {found.axes!r}; they must be headway.sched.Axes")
    try:
        hints = typing.get_type_hints(found.Params)
    except Exception as error:  # what a module of somebody else's wrote in its annotations
        raise BadSetting(f"policy {name!r} has Params whose types cannot be read: {error}") from error
    for field in dataclasses.fields(found.Params):
        if field.default is field.default_factory is dataclasses.MISSING:
            raise BadSetting(f"parameter {field.name!r} of policy {name!r} has no default; give it one")
        if not _is_settable(hints[field.name]):
            kinds = "bool, int, float, str, a StrEnum or a Literal, each with or without None"
            raise BadSetting(
                f"parameter {field.name!r} of policy {name!r} has type {hints[field.name]}; it must be {kinds}"
            )


def make_policy(name: str, settings: Mapping[str, str], defaults: Mapping[str, object] | None = None) -> Policy:
    """Build a policy from `--set` texts; `defaults` are engine-wide limits that fill parameters of equal name.

    Settings that a wrapping policy does not know go to its base. Raises `BadSetting` for an unknown policy or
    parameter, a value of the wrong type, or a contradiction, and `PolicyFault` where a user's policy raises at
    its start.
    """
    found = policy_class(name)
    own, rest = _split(found, settings)
    params = policy_params(name, own, defaults)
    if not issubclass(found, Wrapper):
        return _built(name, found, params)
    _check_base(name, params.base, rest)
    base = make_policy(params.base, rest, defaults)
    return _built(name, found, params, base)


def all_params(
    name: str, settings: Mapping[str, str], defaults: Mapping[str, object] | None = None
) -> dict[str, object]:
    """Every parameter that `make_policy` would set, those of a base included. Raises `BadSetting` like it."""
    found = policy_class(name)
    own, rest = _split(found, settings)
    params = policy_params(name, own, defaults)
    values = {field.name: getattr(params, field.name) for field in parameters(found)}
    if not issubclass(found, Wrapper):
        return values
    _check_base(name, params.base, rest)
    return {**all_params(params.base, rest, defaults), **values}


def _split(found: type[Policy], settings: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Settings of a policy itself, and those for its base."""
    if not issubclass(found, Wrapper):
        return dict(settings), {}
    names = {field.name for field in parameters(found)}
    own = {key: text for key, text in settings.items() if key in names}
    return own, {key: text for key, text in settings.items() if key not in names}


def _check_base(name: str, base: str, rest: Mapping[str, str]) -> None:
    """That it can be wrapped, and knows the settings that are left; who wraps a wrapper is told at the next one."""
    found = policy_class(base)
    if found is policy_class(name):
        raise BadSetting(f"base is {base!r}; {name!r} cannot wrap itself, name another policy")
    known = [field.name for field in parameters(found)]
    if issubclass(found, Wrapper) or set(rest) <= set(known):
        return
    key = next(key for key in rest if key not in known)
    own = ", ".join(field.name for field in parameters(policy_class(name)))
    raise BadSetting(
        f"policy {name!r} has no parameter {key!r}, nor has its base {base!r}; known: {own}; of the base: "
        f"{', '.join(known) or 'none'}"
    )


def _built(name: str, found: type[Policy], *args: object) -> Policy:
    with naming(found, name):
        policy: Policy = found(*args)
    try_out(policy, name)
    return policy


def policy_params(name: str, settings: Mapping[str, str], defaults: Mapping[str, object] | None = None) -> Any:  # noqa: ANN401  # each policy has its own class
    """The `Params` that `make_policy` would give a policy. Raises `BadSetting` like it."""
    found = policy_class(name)
    fields = {field.name: field for field in parameters(found)}
    for key in settings:
        if key not in fields:
            known = ", ".join(fields) or "none"
            raise BadSetting(f"policy {name!r} has no parameter {key!r}; known: {known}")
    values = {key: value for key, value in (defaults or {}).items() if key in fields and value is not None}
    hints = typing.get_type_hints(found.Params)
    values.update({key: _parse(key, text, hints[key]) for key, text in settings.items()})
    with naming(found, name):
        return found.Params(**values)


def parameters(policy: type[Policy]) -> tuple[dataclasses.Field[Any], ...]:
    """A policy's parameters with defaults and help texts (`metadata["help"]`)."""
    return dataclasses.fields(policy.Params)


def choices_of(kind: object) -> list[str]:
    """The words that a parameter of this type accepts; empty when it is not a choice."""
    if isinstance(kind, type) and issubclass(kind, enum.StrEnum):
        return [str(member) for member in kind]
    if typing.get_origin(kind) is typing.Literal:
        return [str(word) for word in typing.get_args(kind)]
    return []


def _is_settable(kind: object) -> bool:
    """Whether `_parse` knows how to read a value of this type."""
    if isinstance(kind, types.UnionType):
        kind = next(part for part in kind.__args__ if part is not type(None))
    return kind in (bool, int, float, str) or bool(choices_of(kind))


_WORDS = {"true": True, "false": False, "yes": True, "no": False, "1": True, "0": False}


def _parse(key: str, text: str, kind: object) -> object:
    """A parameter's value from its text; `none` gives None where the type allows it."""
    if isinstance(kind, types.UnionType):
        if type(None) in kind.__args__ and text.lower() in ("none", ""):
            return None
        kind = next(part for part in kind.__args__ if part is not type(None))
    if words := choices_of(kind):
        if text not in words:
            raise BadSetting(f"{key} is {text!r}; it must be one of {', '.join(words)}")
        return kind(text) if isinstance(kind, type) else text
    if kind is bool:
        if text.lower() not in _WORDS:
            raise BadSetting(f"{key} is {text!r}; it must be true or false")
        return _WORDS[text.lower()]
    if kind is str:
        return text
    assert kind in (int, float), f"parameter {key} has a type that cannot be set from text: {kind}"
    try:
        value = int(text) if kind is int else float(text)
    except ValueError:
        raise BadSetting(f"{key} is {text!r}; it must be {'a whole number' if kind is int else 'a number'}") from None
    if not math.isfinite(value):
        raise BadSetting(f"{key} is {text!r}; it must be finite")
    return value
