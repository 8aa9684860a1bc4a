"""`headway policies`: which schedulers there are, and what can be set about one."""

from __future__ import annotations

import inspect
from dataclasses import MISSING, asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headway.cli.flags import Json
from headway.cli.output import print_json, results

if TYPE_CHECKING:
    from headway.sched import Policy


def policies(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="A policy's name, or module:Class. Without it: the list.")
    ] = None,
    *,
    as_json: Json = False,
) -> None:
    """List the scheduling policies, or show one policy's parameters, axes and source."""
    from headway.sched import POLICIES, policy_class

    if name is not None:
        found = describe(name, policy_class(name))
        print_json(found) if as_json else _show_one(found)
        return
    listed = [describe(known, policy_class(known)) for known in sorted(POLICIES)]
    print_json({"policies": listed}) if as_json else _show_list(listed)


def describe(name: str, policy: type[Policy]) -> dict[str, Any]:
    """Everything to know about a policy, ready for JSON."""
    return {
        "name": name,
        "summary": (inspect.getdoc(policy) or "").partition("\n")[0],
        "source": policy.source,
        "axes": asdict(policy.axes),
        "parameters": _parameters(policy),
    }


def _parameters(policy: type[Policy]) -> list[dict[str, Any]]:
    from typing import get_type_hints

    from headway.sched import choices_of, parameters

    hints = get_type_hints(policy.Params)
    return [
        {
            "name": field.name,
            "type": _type_name(hints[field.name], choices_of(hints[field.name])),
            "default": None if field.default is MISSING else field.default,
            "help": field.metadata.get("help", ""),
        }
        for field in parameters(policy)
    ]


def _type_name(kind: Any, choices: list[str]) -> str:  # noqa: ANN401  a type hint may be a class or a special form
    if choices:
        return "|".join(choices)
    return kind.__name__ if isinstance(kind, type) else str(kind).replace(" | ", "|")


def _show_list(listed: list[dict[str, Any]]) -> None:
    from rich.table import Column, Table

    name = Column("policy", no_wrap=True)  # to be copied, however narrow the terminal
    table = Table(name, "order of the queue", "who shares a step", "memory held", "when memory runs out")
    for found in listed:
        axes = found["axes"]
        table.add_row(found["name"], axes["order"], axes["sharing"], axes["reservation"], axes["shortage"])
    results().print(table)


def _show_one(found: dict[str, Any]) -> None:
    from rich.table import Column, Table

    console = results()
    console.print(f"[bold]{found['name']}[/bold]: {found['summary']}")
    for axis, answer in found["axes"].items():
        console.print(f"  {axis:<12} {answer}", markup=False)
    console.print(f"  {'source':<12} {found['source']}", markup=False)
    if found["parameters"]:
        table = Table(Column("--set", overflow="fold"), "default", "type", "meaning", title_justify="left")
        for parameter in found["parameters"]:
            table.add_row(parameter["name"], str(parameter["default"]), parameter["type"], parameter["help"])
        console.print(table)
    if shared := _shared([parameter["name"] for parameter in found["parameters"]]):
        console.print(
            f"Where a command has a flag of the same name, as serve, its value is the default: {', '.join(shared)}.",
            markup=False,
        )


def _shared(names: list[str]) -> list[str]:
    """Those that `serve` and others have as flags, whose value is then the parameter's default."""
    from headway.engine import EngineConfig

    limits = EngineConfig().policy_defaults()
    return [name for name in names if name in limits]
