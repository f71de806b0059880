"""HTML: a page, tables that wrap instead of being cut, figures inside the file."""

from __future__ import annotations

import base64
import html
import re
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

__all__ = ["Table", "figure_tag", "page", "section_html", "table_html"]

STYLE = """
:root { color-scheme: light }
body { font: 15px/1.55 system-ui, sans-serif; color: #1f2933; background: #fff }
body { max-width: 64rem; margin: 2rem auto; padding: 0 1rem }
h1 { font-weight: 650; margin-bottom: .2rem } h2 { font-weight: 600; margin-top: 2.4rem }
.lead { font-size: 1.12rem; border-left: 4px solid #2563eb; padding: .3rem .9rem; background: #f5f8ff }
img { max-width: 100%; height: auto } .soft { color: #616e7c }
pre { background: #f3f5f7; padding: .8rem; border-radius: 6px; white-space: pre-wrap; overflow-wrap: anywhere }
table { border-collapse: collapse; margin: .6rem 0 }
td, th { padding: .22rem .9rem .22rem 0; text-align: left; vertical-align: top }
thead th, .board tr:first-child th { border-bottom: 1px solid #cbd2d9 } tbody tr:nth-child(even) { background: #f8fafc }
td { overflow-wrap: break-word } .base td { color: #9a3412 } .wide { overflow-x: auto }
.board td, .board th { font-size: .86rem; padding-right: .6rem } .board td, .short { white-space: nowrap }
.board td[colspan] { white-space: normal }
"""

DATE = re.compile(r"\d+-\d+-\d+(.\d\d:\d\d(:\d\d)?)?")


class Table(NamedTuple):
    """A section's text and the table below it."""

    text: str
    headings: Sequence[str]
    rows: Iterable[Sequence[Any]]


def page(title: str, body: str, style: str = "") -> str:
    """Return a whole HTML page."""
    head = f"<meta charset=utf-8><meta name=viewport content='width=device-width'><title>{html.escape(title)}</title>"
    return f"<!doctype html><html lang=en>{head}<style>{STYLE}{style}</style><h1>{html.escape(title)}</h1>{body}</html>\n"


def table_html(headings: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Return a table; without headings its first column is one."""
    head = (
        f"<thead><tr>{''.join(f'<th>{html.escape(str(h))}</th>' for h in headings)}</tr></thead>"
        if headings
        else ""
    )
    lines = []
    for row in rows:
        tags = ["th" if not headings and j == 0 else "td" for j in range(len(row))]
        cells = "".join(
            f"<{tag}{_short(cell)}>{html.escape(_text(cell))}</{tag}>" for tag, cell in zip(tags, row)
        )
        lines.append(f"<tr>{cells}</tr>")
    return f"<div class=wide><table>{head}<tbody>{''.join(lines)}</tbody></table></div>"


def _text(cell: Any) -> str:
    return f"{cell:.4g}" if isinstance(cell, float) else str(cell)


def _short(cell: Any) -> str:
    """Return the class of a date, which browsers would break at its hyphens."""
    return " class=short" if DATE.fullmatch(_text(cell)) else ""


def figure_tag(figure: Any, alt: str) -> str:
    """Return a figure as an image inside the page."""
    from corollary import plot

    data = base64.b64encode(plot.save(figure)).decode()
    return f'<img alt="{html.escape(alt)}" src="data:image/png;base64,{data}">'


def section_html(heading: str, text: Any, figure: Any = None) -> str:
    """Return a section: a heading, text or a table, and a figure."""
    parts = [f"<h2>{html.escape(heading)}</h2>"]
    if isinstance(text, Table):
        parts += [f"<p>{html.escape(text.text)}</p>", table_html(text.headings, text.rows)]
    elif text:
        tag = "pre" if "\n" in text else "p"
        parts.append(f"<{tag}>{html.escape(text)}</{tag}>")
    if figure is not None:
        parts.append(figure_tag(figure, heading))
    return "".join(parts)
