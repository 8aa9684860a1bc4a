"""Tables: the same rows as plain text, Markdown or HTML."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

Cell = str | int | float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """A table with a title, and a note on how to read it. The first column names the row, the others are numbers."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    note: str = ""

    def to_text(self) -> str:
        """Aligned columns for a terminal."""
        cells = [list(self.columns), *([show(cell) for cell in row] for row in self.rows)]
        widths = [max(len(row[k]) for row in cells) for k in range(len(self.columns))]
        lines = [
            "  ".join(_pad(cell, width, k) for k, (cell, width) in enumerate(zip(row, widths, strict=True)))
            for row in cells
        ]
        lines.insert(1, "  ".join("-" * width for width in widths))
        head, tail = ([self.title] if self.title else []), ([self.note] if self.note else [])
        return "\n".join(line.rstrip() for line in [*head, *lines, *tail])

    def to_markdown(self) -> str:
        """A Markdown table under a heading."""
        rows = [_markdown_row(list(self.columns)), _markdown_row(["---", *["---:"] * (len(self.columns) - 1)])]
        rows += [_markdown_row([show(cell) for cell in row]) for row in self.rows]
        head = f"### {self.title}\n\n" if self.title else ""
        return head + "\n".join(rows) + (f"\n\n{self.note}" if self.note else "")

    def to_html(self) -> str:
        """A `<table>` with a caption."""
        head = "".join(f'<th scope="col">{escape(column)}</th>' for column in self.columns)
        body = "".join(
            "<tr>" + "".join(_html_cell(cell, k) for k, cell in enumerate(row)) + "</tr>" for row in self.rows
        )
        note = f"<p class=note>{escape(self.note)}</p>" if self.note else ""
        caption = f"<caption>{escape(self.title)}</caption>" if self.title else ""
        return (
            f"<div class=scroll><table>{caption}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>{note}"
        )


def show(cell: Cell) -> str:
    """A cell as text: four significant digits, thousands apart, a dash for what is not there."""
    if cell is None or (isinstance(cell, float) and math.isnan(cell)):
        return "-"
    if isinstance(cell, str):
        return cell
    if cell == 0:
        return "0"
    if isinstance(cell, int) or abs(cell) >= 10_000:
        return f"{cell:,.0f}"
    if abs(cell) < 1e-3:
        return f"{cell:.2e}"
    digits = max(0, 3 - math.floor(math.log10(abs(cell))))
    return f"{cell:.{min(digits, 4)}f}"


def _pad(cell: str, width: int, column: int) -> str:
    return cell.rjust(width) if column else cell.ljust(width)


def _markdown_row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _html_cell(cell: Cell, column: int) -> str:
    return f"<td>{escape(show(cell))}</td>" if column else f'<th scope="row">{escape(show(cell))}</th>'
