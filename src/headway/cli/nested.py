"""Commands inside a command: `bench`, `simulate` and `tune` read their flags only when they are asked for."""

from __future__ import annotations

from typing import Any

import typer
import typer.main
from typer.core import TyperGroup


def run_nested(app: typer.Typer, ctx: typer.Context, name: str) -> int:
    """The status of an app's command, given all that stands behind its name.

    Unlike the command's own `main` it lets an interruption through: typer makes a silent status 130 of it.
    """
    command = typer.main.get_command(app)
    try:
        with command.make_context(name, list(ctx.args)) as inner:
            status = command.invoke(inner)
    except typer.Exit as done:  # --help
        return done.exit_code
    return status if isinstance(status, int) else 0


class Face(TyperGroup):
    """A group of commands. An interruption comes out as `typer.Abort`, whatever this version of typer makes of it.

    A usage error always says whose it is: the parser leaves that out of what it says of a flag without its value.
    """

    def invoke(self, ctx: Any) -> Any:  # noqa: ANN401  a class of click's, or of the copy that newer typers hide
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as error:
            raise typer.Abort from error
        except Exception as error:
            if getattr(error, "ctx", ctx) is None and (name := ctx.invoked_subcommand):
                usage: Any = error  # known by its shape, as above
                usage.ctx = type(ctx)(self.commands[name], info_name=name, parent=ctx)
            raise
