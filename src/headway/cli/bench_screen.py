"""What a terminal shows while something is measured; plain lines, and only finished ones, elsewhere."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Self

from headway.cli.output import notices

if TYPE_CHECKING:
    from rich.table import Table

    from headway.bench import Progress


class Screen:
    """A bar and a live table on stderr. Use it as a context manager."""

    def __init__(self) -> None:
        from rich.live import Live

        self._console = notices()
        self._is_live = sys.stderr.isatty()
        self._live = Live(console=self._console, transient=True, auto_refresh=False) if self._is_live else None

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def show(self, heading: str, progress: Progress) -> None:
        """Draw the state of a run."""
        if self._live is not None:
            self._live.update(table(heading, progress), refresh=True)

    def log(self, line: str) -> None:
        """A line that stays."""
        self._console.print(line, markup=False, soft_wrap=True)


def table(heading: str, progress: Progress) -> Table:
    """A run at a glance."""
    from rich.progress_bar import ProgressBar
    from rich.table import Table

    grid = Table.grid(padding=(0, 2))
    total = progress.num_total
    done = f"{progress.num_done:,}" + (f" of {total:,}" if total else "")
    bar = ProgressBar(total=total, completed=progress.num_done, width=40) if total else ""
    grid.add_row(f"[bold]{heading}[/bold]", bar, f"{done} in {progress.elapsed_s:.0f} s")
    ended = "  ".join(f"{outcome.value} {num:,}" for outcome, num in progress.ended.items() if num)
    rate = progress.num_output / progress.elapsed_s if progress.elapsed_s else 0.0
    grid.add_row(f"in flight {progress.num_in_flight:,}", ended, f"{rate:,.0f} tokens/s")
    grid.add_row("last 100, median", f"TTFT {_ms(progress.ttft_s)}", f"TPOT {_ms(progress.tpot_s)}")
    return grid


def _ms(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds * 1e3:,.0f} ms"
