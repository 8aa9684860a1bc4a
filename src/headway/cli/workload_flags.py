"""A workload on the command line: a file, and one flag for each of its usual fields."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from headway.cli.output import notices
from headway.workload import FLAGS, Flag, Workload, load_workload

_PANEL = "Workload"
_ALIASES = {  # what other tools call them
    "rate": "--request-rate",
    "num_requests": "--num-prompts",
    "prompt_len": "--random-input-len",
    "output_len": "--random-output-len",
    "cancel_after_tokens": "--cancel-tokens",
}
_REPEATABLE = ("goodput", "tenant", "traffic_class")


@dataclass(frozen=True, slots=True)
class Asked:
    """What the user said about the workload: a file, flags over it, or flags alone."""

    path: Path | None
    flags: Mapping[str, Any]

    def load(
        self, count_tokens: Callable[[str], int] | None = None, changes: Mapping[str, object] | None = None
    ) -> Workload:
        """The workload, with `changes` over the flags. Raises `BadSetting`."""
        flags = {**self.flags, **(changes or {})}
        if self.path is None:
            flags = _with_defaults(flags)
        return load_workload(self.path, flags, count_tokens=count_tokens)


def tell_left_out(workload: Workload) -> None:
    """Say on stderr how much of the workload's files is not sent."""
    for told in workload.left_out():
        notices().print(f"headway: {told}", markup=False, soft_wrap=True)


_DEFAULTS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "rate": ("inf", ("arrivals", "rate", "cv", "burstiness", "users", "trace")),
    "num_requests": ("100", ("num_requests", "duration_s", "trace")),
    "prompt_len": ("256", ("prompt_len", "lengths_trace", "trace", "sessions_trace")),
    "output_len": ("64", ("output_len", "lengths_trace", "trace", "sessions_trace")),
}
"""Without a file: a flag's value where neither it nor any of the others that say the same is given."""


def _with_defaults(flags: Mapping[str, Any]) -> dict[str, Any]:
    given = {name for name, value in flags.items() if value not in (None, (), [])}
    missing = {name: value for name, (value, others) in _DEFAULTS.items() if not given & set(others)}
    if flags.get("prompts_fit") == "whole":
        missing.pop("prompt_len", None)
    return {**flags, **missing}


def with_workload(command: Callable[..., int]) -> Callable[..., int]:
    """A command that takes WORKLOAD and the workload's flags, and hears of them as its argument `asked`."""
    signature = inspect.signature(command, eval_str=True)
    own = [parameter for parameter in signature.parameters.values() if parameter.name != "asked"]

    @functools.wraps(command)
    def run(**given: Any) -> int:  # noqa: ANN401  # each flag has its own type
        flags = {name: given.pop(name) for name in FLAGS}
        return command(asked=Asked(given.pop("workload"), flags), **given)

    every = [*own, _argument(), *(_option(name, flag) for name, flag in FLAGS.items())]
    run.__signature__ = inspect.Signature(  # type: ignore[attr-defined]  # what inspect looks at first
        [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in every], return_annotation=int
    )
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in every} | {"return": int}
    return run


def _argument() -> inspect.Parameter:
    kind = Annotated[
        Path | None,
        typer.Argument(
            metavar="WORKLOAD",
            help="A specification (.toml, .yaml, .json), a trace (.csv, .jsonl) or ShareGPT's list (.json).",
            show_default=False,
        ),
    ]
    return inspect.Parameter("workload", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=kind)


def _option(name: str, flag: Flag) -> inspect.Parameter:
    spelled = [f"--{name.replace('_', '-')}"]
    if name in _ALIASES:
        spelled.append(_ALIASES[name])
    default = f"{_DEFAULTS[name][0]} without WORKLOAD" if name in _DEFAULTS else False
    option = typer.Option(*spelled, help=flag.help, show_default=default, rich_help_panel=_PANEL, metavar="VALUE")
    kind = Annotated[list[str] | None, option] if name in _REPEATABLE else Annotated[str | None, option]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=kind)
