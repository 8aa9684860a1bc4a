"""One HTML page that needs nothing but itself: style, tables and pictures are inside, and nothing is fetched."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

from headway.report.chart import Chart
from headway.report.grid import Cell, Grid, show
from headway.report.style import STYLE
from headway.report.svg import draw


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """A key figure: what it is, its value with unit, and a second line."""

    name: str
    value: str
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A part of a page: text, cards, warnings, charts and tables, in this order."""

    title: str = ""
    text: str = ""
    cards: Sequence[Card] = ()
    warnings: Sequence[str] = ()
    facts: Mapping[str, object] | None = None
    charts: Sequence[Chart] = ()
    grids: Sequence[Grid] = ()


def render_page(title: str, subtitle: str, sections: Sequence[Section]) -> str:
    """The whole document. Every text is escaped: names of models, tenants and files may hold anything."""
    body = "".join(map(_section, sections))
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{escape(title)}</title><style>{STYLE}</style></head>"
        f"<body><main><header><h1>{escape(title)}</h1><p>{escape(subtitle)}</p></header>{body}</main></body></html>\n"
    )


def _section(section: Section) -> str:
    parts = [
        f"<h2>{escape(section.title)}</h2>" if section.title else "",
        *(f'<p class=warning role="note">{escape(warning)}</p>' for warning in section.warnings),
        f"<p>{escape(section.text)}</p>" if section.text else "",
        _cards(section.cards),
        _facts(section.facts or {}),
        f"<div class=charts>{''.join(map(draw, section.charts))}</div>" if section.charts else "",
        *(grid.to_html() for grid in section.grids),
    ]
    return f"<section>{''.join(parts)}</section>"


def _cards(cards: Sequence[Card]) -> str:
    if not cards:
        return ""
    items = "".join(
        f"<div><span>{escape(card.name)}</span><b>{escape(card.value)}</b><small>{escape(card.detail)}</small></div>"
        for card in cards
    )
    return f"<div class=cards>{items}</div>"


def _facts(facts: Mapping[str, object]) -> str:
    if not facts:
        return ""
    rows = "".join(f"<dt>{escape(name)}</dt><dd>{escape(_fact(value))}</dd>" for name, value in facts.items())
    return f"<dl>{rows}</dl>"


def _fact(value: object) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name}: {_fact(part)}" for name, part in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(map(_fact, value))
    if isinstance(value, bool):
        return "yes" if value else "no"
    cell: Cell = value if isinstance(value, int | float | str) else str(value)
    return str(cell) if isinstance(cell, int) else show(cell)
