"""`headway simulate`: a workload on hardware that need not be there, in virtual time."""

from __future__ import annotations

import typer

from headway.cli.nested import run_nested


def simulate(ctx: typer.Context) -> int:
    """Run a workload in virtual time: any policy, any hardware, any number of replicas."""
    return run_nested(make_simulate(), ctx, "headway simulate")


def make_simulate() -> typer.Typer:
    """The command itself. It knows a workload's fields, whose libraries other commands need not wait for."""
    from headway.cli.simulate_run import run
    from headway.cli.workload_flags import with_workload

    app = typer.Typer(
        add_completion=False,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.command(help=simulate.__doc__)(with_workload(run))
    return app
