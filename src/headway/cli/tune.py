"""`headway tune`: the settings to serve a workload with, and why."""

from __future__ import annotations

import typer

from headway.cli.nested import run_nested


def tune(ctx: typer.Context) -> int:
    """Find the settings that keep an SLO table under a workload, verify them here, and write a config file."""
    return run_nested(make_tune(), ctx, "headway tune")


def make_tune() -> typer.Typer:
    """The command itself. It knows a workload's fields, whose libraries other commands need not wait for."""
    from headway.cli.tune_run import run
    from headway.cli.workload_flags import with_workload

    app = typer.Typer(
        add_completion=False,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.command(help=tune.__doc__)(with_workload(run))
    return app
