"""What the console script calls: it loads the commands where Ctrl-C is answered already."""

from __future__ import annotations

import sys

INTERRUPTED = 130


def start() -> int:
    """Run the command line of this process and return its exit status."""
    try:
        from headway.cli.main import main
    except KeyboardInterrupt:
        print("headway: interrupted", file=sys.stderr)
        return INTERRUPTED
    return main()
