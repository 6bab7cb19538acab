"""Values as HTML fragments, for notebooks: tables, lists of facts, headings.

In: texts and numbers. Out: HTML that needs no style sheet, shows in light and dark, and scrolls
within its own box where it is too wide. Everything given is escaped but what `Markup` wraps.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

CellValue = str | int | float | None
ROWS_SHOWN = 60
"""Of a longer table the first rows are shown, and how many there are in all."""

_BOX = "max-width:100%;overflow-x:auto;margin:0.4em 0;font-size:13px"
_TABLE = "border-collapse:collapse;margin:6px 0;font-size:13px"
_TEXT = "text-align:left;padding:2px 12px 2px 0;white-space:nowrap"
_NUMBER = "text-align:right;padding:2px 12px 2px 0;white-space:nowrap"
_LINE = "border-bottom:1px solid color-mix(in srgb, currentColor 25%, transparent)"


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


def render_section(title: str, *parts: str) -> str:
    """Fragments below one another under a heading."""
    return f'<div style="{_BOX}"><b>{escape(title)}</b>{"".join(parts)}</div>'


def render_properties(pairs: Iterable[tuple[str, CellValue]]) -> str:
    """Names and what they are; pairs without a value are left out."""
    rows = (
        f'<tr style="background:none"><td style="{_TEXT};opacity:0.7">{escape(name)}</td>'
        f'<td style="{_TEXT}">{_shown(value)}</td></tr>'
        for name, value in pairs
        if value is not None
    )
    return f'<table style="{_TABLE}">{"".join(rows)}</table>'


def render_table(head: Sequence[str], rows: Sequence[Sequence[CellValue]]) -> str:
    """Rows under their heads, numbers to the right; nothing where there is no row."""
    if not rows:
        return ""
    numeric = [any(isinstance(row[n], int | float) for row in rows) for n in range(len(head))]
    styles = [_NUMBER if right else _TEXT for right in numeric]
    heads = "".join(
        f'<th style="{style};{_LINE}">{escape(name)}</th>'
        for style, name in zip(styles, head, strict=True)
    )
    shown = "".join(
        '<tr style="background:none">'
        + "".join(
            f'<td style="{style}">{_shown(value)}</td>'
            for style, value in zip(styles, row, strict=True)
        )
        + "</tr>"
        for row in rows[:ROWS_SHOWN]
    )
    more = len(rows) - ROWS_SHOWN
    rest = f'<div style="opacity:0.7">and {more:,} more</div>' if more > 0 else ""
    body = f"<thead><tr>{heads}</tr></thead><tbody>{shown}</tbody>"
    return f'<table style="{_TABLE}">{body}</table>{rest}'


def render_bar(share: float) -> Markup:
    """A bar as long as `share`, from 0 to 1, of 120 pixels."""
    width = round(120 * min(max(share, 0.0), 1.0))
    return Markup(
        f'<span style="display:inline-block;height:9px;width:{width}px;background:#3b6fb6"></span>'
    )


def _shown(value: CellValue) -> str:
    if isinstance(value, Markup):
        return str(value)
    if isinstance(value, str):
        return escape(value)
    return "–" if value is None else f"{value:,}"
