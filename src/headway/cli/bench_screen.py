"""What a terminal shows while something is measured; elsewhere a plain line now and then."""

from __future__ import annotations

import sys
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, Self, TypeVar

from headway.cli.output import notices
from headway.interruptible import run_interruptible

if TYPE_CHECKING:
    from rich.table import Table

    from headway.bench import Progress

Found = TypeVar("Found")

PLAIN_S = 30.0
"""Seconds of a run between two lines where no terminal is: nobody is to wonder whether it goes on."""


class Screen:
    """A bar and a live table on stderr. Use it as a context manager."""

    def __init__(self) -> None:
        from rich.live import Live

        self._console = notices()
        self._is_live = sys.stderr.isatty()
        self._live = Live(console=self._console, transient=True, auto_refresh=False) if self._is_live else None
        self._seen_s, self._due_s = 0.0, PLAIN_S

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def run(self, work: Coroutine[Any, Any, Found]) -> Found:
        """Do the work that is shown here, until it ends or is interrupted (`run_interruptible`)."""
        return run_interruptible(work)

    def show(self, heading: str, progress: Progress) -> None:
        """Draw the state of a run."""
        if self._live is not None:
            self._live.update(table(heading, progress), refresh=True)
            return
        if progress.elapsed_s < self._seen_s:  # another run
            self._due_s = PLAIN_S
        self._seen_s = progress.elapsed_s
        if self._seen_s >= self._due_s:
            self._due_s = self._seen_s + PLAIN_S
            self.log(plain(heading, progress))

    def log(self, line: str) -> None:
        """A line that stays."""
        self._console.print(line, markup=False, soft_wrap=True)


def plain(heading: str, progress: Progress) -> str:
    """A run in a line."""
    begin = f"{heading}: " if heading else ""
    return f"{begin}{_done(progress)}, {progress.num_in_flight:,} in flight, {_rate(progress):,.0f} tokens/s"


def table(heading: str, progress: Progress) -> Table:
    """A run at a glance."""
    from rich.progress_bar import ProgressBar
    from rich.table import Table

    grid = Table.grid(padding=(0, 2))
    total = progress.num_total
    bar = ProgressBar(total=total, completed=progress.num_done, width=40) if total else ""
    grid.add_row(f"[bold]{heading}[/bold]", bar, _done(progress))
    ended = "  ".join(f"{outcome.value} {num:,}" for outcome, num in progress.ended.items() if num)
    grid.add_row(f"in flight {progress.num_in_flight:,}", ended, f"{_rate(progress):,.0f} tokens/s")
    grid.add_row("last 100, median", f"TTFT {_ms(progress.ttft_s)}", f"TPOT {_ms(progress.tpot_s)}")
    return grid


def _done(progress: Progress) -> str:
    total = f" of {progress.num_total:,}" if progress.num_total else ""
    return f"{progress.num_done:,}{total} in {progress.elapsed_s:.0f} s"


def _rate(progress: Progress) -> float:
    return progress.num_output / progress.elapsed_s if progress.elapsed_s else 0.0


def _ms(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds * 1e3:,.0f} ms"
