"""`headway bench`: measure a server, the engine in this process, or its policies."""

from __future__ import annotations

import typer

from headway.cli.bench_policies import policies


def make_bench() -> typer.Typer:
    """The sub-commands."""
    app = typer.Typer(name="bench", help="Measure a server or the engine, and compare.", no_args_is_help=True)
    for command in (policies,):
        app.command()(command)
    return app
