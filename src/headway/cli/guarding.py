"""Flags about admission: what is refused at the door, and which promises are watched."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headway.errors import BadSetting

if TYPE_CHECKING:
    from headway.engine import Guarding

_PANEL = "Admission"

ADMISSION: dict[str, tuple[type[int | float], int | float, str]] = {
    "max_concurrent_requests": (int, 0, "Most requests inside, waiting and running; 0: no limit."),
    "max_queued_requests": (int, 1024, "Most requests that wait for their first place; 0: no limit."),
    "max_queued_tokens": (int, 0, "Most prompt tokens that wait; 0: no limit."),
    "max_queued_kv": (float, 0.0, "The same in multiples of what the KV cache holds; 0: no limit."),
    "ttft_limit_ms": (float, 0.0, "Refuse a request whose first token is predicted later; 0: never."),
    "queue_timeout_ms": (float, 0.0, "Longest wait for a first place; 0: as long as it takes."),
    "step_timeout_s": (float, 120.0, "Seconds after which a step counts as hung; 0: never."),
}
"""Field of `AdmissionLimits` to type, default and help."""

_SLO = Annotated[
    list[str] | None,
    typer.Option(
        "--slo",
        metavar="KEY=VALUE",
        help="A promise for guardrails to watch, like ttft_p95_ms=1500 or itl_p99_ms=120; repeatable.",
        show_default=False,
        rich_help_panel=_PANEL,
    ),
]
_ACTIONS = Annotated[
    str,
    typer.Option(
        "--guardrail-actions",
        metavar="WORDS",
        help="What may be done while a promise is broken: of long, batch, slow; empty: only tell.",
        rich_help_panel=_PANEL,
    ),
]
_LONG = Annotated[
    int,
    typer.Option(
        "--guardrail-long-tokens", help="Prompts of more tokens are long to guardrails.", rich_help_panel=_PANEL
    ),
]


def with_guarding(command: Callable[..., None]) -> Callable[..., None]:
    """A command that takes the flags about admission, and hears of them as its argument `guarding`."""
    signature = inspect.signature(command, eval_str=True)
    own = [parameter for parameter in signature.parameters.values() if parameter.name != "guarding"]
    every = [*own, *_parameters()]

    @functools.wraps(command)
    def run(**given: Any) -> None:  # noqa: ANN401  # each flag has its own type
        names = {parameter.name for parameter in own}
        rest = {name: given.pop(name) for name in list(given) if name not in names}
        defaults = {parameter.name: parameter.default for parameter in _parameters()}
        command(guarding=guarding_of(defaults | rest), **given)

    run.__signature__ = inspect.Signature(  # type: ignore[attr-defined]  # what inspect looks at first
        [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in every], return_annotation=None
    )
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in every} | {"return": None}
    return run


def guarding_of(given: Mapping[str, Any]) -> Guarding:
    """The flags as settings. Raises `BadSetting`."""
    from headway.engine import AdmissionLimits, Guarding, GuardSettings

    return Guarding(
        limits=AdmissionLimits(**{name: given[name] for name in ADMISSION}),
        guards=GuardSettings(
            slo=parse_slo(given["slo"] or ()),
            actions=tuple(word.strip() for word in given["guardrail_actions"].split(",") if word.strip()),
            long_tokens=given["guardrail_long_tokens"],
        ),
    )


def parse_slo(texts: Iterable[str]) -> dict[str, float]:
    """A table of promises from KEY=VALUE. Raises `BadSetting`."""
    table: dict[str, float] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        try:
            table[key.strip()] = float(value)
        except ValueError:
            raise BadSetting(f"--slo {text!r} is not like ttft_p95_ms=1500") from None
        if not equals:
            raise BadSetting(f"--slo {text!r} is not like ttft_p95_ms=1500")
    return table


def _parameters() -> list[inspect.Parameter]:
    kind = inspect.Parameter.KEYWORD_ONLY
    found = [
        inspect.Parameter(
            name,
            kind,
            default=default,
            annotation=Annotated[
                of, typer.Option(f"--{name.replace('_', '-').removesuffix('-s')}", help=text, rich_help_panel=_PANEL)
            ],
        )
        for name, (of, default, text) in ADMISSION.items()
    ]
    return [
        *found,
        inspect.Parameter("slo", kind, default=None, annotation=_SLO),
        inspect.Parameter("guardrail_actions", kind, default="long,batch,slow", annotation=_ACTIONS),
        inspect.Parameter("guardrail_long_tokens", kind, default=2048, annotation=_LONG),
    ]
