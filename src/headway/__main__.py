"""`python -m headway`: what the console script does, where that is not on the path."""

from __future__ import annotations

import sys

from headway.cli.start import start

if __name__ == "__main__":
    sys.exit(start())
