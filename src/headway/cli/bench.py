"""`headway bench`: measure a server, the engine in this process, or its policies."""

from __future__ import annotations

from functools import cache

import typer

from headway.cli.nested import Face, run_nested


def bench(ctx: typer.Context) -> int:
    """Measure a server, the engine or its policies; find its capacity; compare results."""
    return run_nested(make_bench(), ctx, "headway bench")


bench_settings = {
    "ignore_unknown_options": True,  # everything behind `bench` is the sub-command's, its --help too
    "allow_extra_args": True,
    "allow_interspersed_args": False,
    "help_option_names": [],
}


@cache
def make_bench() -> typer.Typer:
    """The sub-commands. They know a workload's fields, whose libraries other commands need not wait for."""
    from headway.cli.bench_capacity import capacity
    from headway.cli.bench_compare import compare
    from headway.cli.bench_isolation import isolation
    from headway.cli.bench_offline import offline
    from headway.cli.bench_overload import overload
    from headway.cli.bench_policies import policies
    from headway.cli.bench_serve import serve
    from headway.cli.workload_flags import with_workload

    app = typer.Typer(
        cls=Face,
        help=bench.__doc__,
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    for name, command in (("serve", serve), ("offline", offline), ("capacity", capacity)):
        app.command(name)(with_workload(command))
    app.command()(policies)
    app.command()(isolation)
    app.command()(overload)
    app.command()(compare)
    return app
