"""HTML fragments for notebooks: tables, property lists and bars, without a style sheet.

All text is escaped except `Markup`.
"""

from collections.abc import Iterable, Sequence
from html import escape

CellValue = str | int | float | None
ROWS_SHOWN = 60
"""Longer tables show this number of rows, and the number of the remaining ones."""

_BOX = "max-width:100%;overflow-x:auto;margin:0.4em 0;font-size:13px"
_TABLE = "border-collapse:collapse;margin:6px 0;font-size:13px"
_TEXT = "text-align:left;padding:2px 12px 2px 0;white-space:nowrap"
_NUMBER = "text-align:right;padding:2px 12px 2px 0;white-space:nowrap"
_LINE = "border-bottom:1px solid color-mix(in srgb, currentColor 25%, transparent)"


class Markup(str):
    """Text that is already HTML."""

    __slots__ = ()


def render_section(title: str, *parts: str) -> str:
    return f'<div style="{_BOX}"><b>{escape(title)}</b>{"".join(parts)}</div>'


def render_properties(pairs: Iterable[tuple[str, CellValue]]) -> str:
    """Return a table of names and values; pairs with the value None are omitted."""
    rows = (
        f'<tr style="background:none"><td style="{_TEXT};opacity:0.7">{escape(name)}</td>'
        f'<td style="{_TEXT}">{_format_cell(value)}</td></tr>'
        for name, value in pairs
        if value is not None
    )
    return f'<table style="{_TABLE}">{"".join(rows)}</table>'


def render_table(head: Sequence[str], rows: Sequence[Sequence[CellValue]]) -> str:
    """Return a table with right-aligned number columns, or "" if there are no rows."""
    if not rows:
        return ""
    numeric = [any(isinstance(row[n], int | float) for row in rows) for n in range(len(head))]
    styles = [_NUMBER if right else _TEXT for right in numeric]
    named = zip(styles, head, strict=True)
    heads = "".join(f'<th style="{style};{_LINE}">{escape(name)}</th>' for style, name in named)
    body = f"<thead><tr>{heads}</tr></thead><tbody>"
    for row in rows[:ROWS_SHOWN]:
        cells = zip(styles, map(_format_cell, row), strict=True)
        columns = "".join(f'<td style="{style}">{text}</td>' for style, text in cells)
        body += f'<tr style="background:none">{columns}</tr>'
    more = len(rows) - ROWS_SHOWN
    rest = f'<div style="opacity:0.7">and {more:,} more</div>' if more > 0 else ""
    return f'<table style="{_TABLE}">{body}</tbody></table>{rest}'


def render_bar(share: float) -> Markup:
    """Return a horizontal bar; `share` is its length from 0 to 1 (120 pixels)."""
    width = round(120 * min(max(share, 0.0), 1.0))
    return Markup(
        f'<span style="display:inline-block;height:9px;width:{width}px;background:#3b6fb6"></span>'
    )


def _format_cell(value: CellValue) -> str:
    if isinstance(value, Markup):
        return str(value)
    if isinstance(value, str):
        return escape(value)
    return "–" if value is None else f"{value:,}"
