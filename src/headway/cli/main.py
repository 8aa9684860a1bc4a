"""`headway`: the list of commands, and what an error means for the exit status."""

from __future__ import annotations

import errno
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache, partial
from importlib import import_module
from types import FrameType
from typing import Annotated

import typer
import typer.main

from headway.cli.admin import admin_app
from headway.cli.bench import bench, bench_settings
from headway.cli.config_file import blame_file
from headway.cli.fidelity import fidelity_app
from headway.cli.nested import Face
from headway.cli.simulate import simulate
from headway.cli.tenants import tenants_app
from headway.cli.tune import tune
from headway.errors import BadModelFile, BadSetting, HeadwayError, InvalidRequest

INTERRUPTED = 130
BAD_INPUT = 2
FAILED = 1

_UNWRITABLE = frozenset({errno.EPIPE, errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS})
"""Whoever should take what we write cannot; the fault is not ours."""

_AGAIN_S = 0.01
"""How much later an interruption that was thrown away comes again."""

COMMANDS = (
    "serve",
    "chat",
    "complete",
    "generate",
    "calibrate",
    "policies",
    "tape",
    "usage",
    "explain",
    "replay",
    "reproduce",
    "collect_env",
    "profile",
)
"""Modules of this package with a function of the same name: a command. Groups and wrappers are added below."""


def make_app() -> typer.Typer:
    """All commands, without running any."""
    app = typer.Typer(
        name="headway",
        cls=Face,
        help="LLM serving with continuous batching, and every published scheduler by name.",
        invoke_without_command=True,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_face)
    for name in COMMANDS:
        app.command()(getattr(import_module(f"headway.cli.{name}"), name))
    app.add_typer(tenants_app())
    app.add_typer(admin_app())
    app.add_typer(fidelity_app())
    for wrapper in (bench, simulate, tune):
        app.command(add_help_option=False, context_settings=bench_settings)(wrapper)
    return app


def _face(
    ctx: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version and leave.")] = False,
) -> None:
    if version:
        from headway import __version__

        print(__version__)
        raise typer.Exit
    if ctx.invoked_subcommand is None:
        print(ctx.get_help())


def main(args: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit status.

    0: done. 1: ran, but failed. 2: bad usage or bad input. 130: interrupted, by Ctrl-C or SIGTERM. What is not 0 leaves
    one line on stderr, but for a traceback where the fault is ours.
    """
    try:
        with _terminated_as_interrupted():
            status = _commands()(args=args, prog_name="headway", standalone_mode=False)
            sys.stdout.flush()
    except (BadSetting, BadModelFile, InvalidRequest) as error:
        return _complain("headway", str(error), BAD_INPUT)
    except HeadwayError as error:
        return _complain("headway", str(error), FAILED)
    except (KeyboardInterrupt, typer.Abort):
        return _complain("headway", "interrupted", INTERRUPTED)
    except (OSError, UnicodeEncodeError) as error:
        if not _is_unwritable(error):
            raise
        return _unwritten(error)
    except Exception as error:
        if (explain := getattr(error, "format_message", None)) is None:
            raise
        # A usage error, known by its shape: typer brings its own copy of click, or not, depending on its version.
        where = getattr(getattr(error, "ctx", None), "command_path", "headway")
        # Where a command alone is missing its help was shown, and nothing else is said.
        mistake = (blame_file(error) or explain()).rstrip(".") or "which command?"
        return _complain(where, f"{mistake} (see {where} --help)", BAD_INPUT)
    return status if isinstance(status, int) else 0


@contextmanager
def _terminated_as_interrupted() -> Iterator[None]:
    """SIGTERM, as `timeout` and supervisors send it, ends a command as Ctrl-C does: what was measured is still told.

    Neither is lost where Python throws exceptions away: in the callbacks of weak references and in finalizers.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, _interrupt) for number in (signal.SIGTERM, signal.SIGALRM)}
    tell = sys.unraisablehook
    sys.unraisablehook = partial(_interrupt_again, tell)
    try:
        yield
    finally:
        sys.unraisablehook = tell
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        for number, handler in before.items():
            signal.signal(number, handler)


def _interrupt(_: int, frame: FrameType | None) -> None:
    """Do what Ctrl-C would do now. A program that a script started in its background ignores that; it ends, too."""
    if callable(signal.getsignal(signal.SIGINT)):
        signal.raise_signal(signal.SIGINT)  # an event loop hears the signal, not its handler's call
    else:
        signal.default_int_handler(signal.SIGINT, frame)


def _interrupt_again(tell: Callable[[sys.UnraisableHookArgs], object], thrown_away: sys.UnraisableHookArgs) -> None:
    """Interrupt once more, a moment later and by another signal: nothing raised in here would get out either."""
    if thrown_away.exc_type is KeyboardInterrupt:
        signal.setitimer(signal.ITIMER_REAL, _AGAIN_S)
    else:
        tell(thrown_away)


def _is_unwritable(error: OSError | UnicodeEncodeError) -> bool:
    """Whether the fault is of what should take our output; what no UTF-8 can write is a mistake of ours."""
    if isinstance(error, UnicodeEncodeError):
        return not error.encoding.startswith("utf")
    return error.errno in _UNWRITABLE


def _unwritten(error: OSError | UnicodeEncodeError) -> int:
    """What was printed or written came nowhere; if its reader has left, nobody is told."""
    if isinstance(error, UnicodeEncodeError):
        shown = ascii(error.object[error.start : error.end][:20])
        return _complain(
            "headway", f"{shown} cannot be written as {error.encoding}: set PYTHONIOENCODING=utf-8", FAILED
        )
    with suppress(OSError):
        sys.stdout.flush()  # another file may be the full one
    # What is still buffered must not raise again when Python shuts down.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if error.errno == errno.EPIPE:
        return FAILED
    return _complain("headway", f"cannot write {error.filename or 'the output'}: {error.strerror}", FAILED)


@cache
def _commands() -> Callable[..., object]:
    # Made once: reading the flags of all commands takes longer than most of them do.
    return typer.main.get_command(make_app())


def _complain(where: str, message: str, status: int) -> int:
    print(f"{where}: {' '.join(message.split())}", file=sys.stderr)
    return status
