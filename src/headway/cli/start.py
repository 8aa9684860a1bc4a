"""What the console script calls: it loads the commands where Ctrl-C is answered already."""

from __future__ import annotations

import os
import sys

INTERRUPTED = 130


def start() -> int:
    """Run the command line of this process and return its exit status."""
    _replace_closed()
    try:
        from headway.cli.main import main
    except KeyboardInterrupt:
        print("headway: interrupted", file=sys.stderr)
        return INTERRUPTED
    return main()


def _replace_closed() -> None:
    """Started with `>&-` or `2>&-`, as by some supervisors, Python has no such stream: what is said there goes nowhere.

    Else a notice would end a command, or stand on stdout among its results.
    """
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_WRONLY), "w", encoding="utf-8"))
