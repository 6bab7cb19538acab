"""Plain-text tables and numbers in the terminal's width, 80 columns if piped."""

import re
import shutil
import textwrap
from collections.abc import Sequence
from itertools import zip_longest
from typing import TypeVar

COLUMNS_IF_PIPED = 80
MIN_COLUMNS = 24
MIN_VALUE_COLUMNS = 24
"""Values of pairs with less room follow below their names."""
MAX_PIECE = 24
WORD = re.compile(r"[^ ]*[ ]*")
PIECE = re.compile(r"[^ _/;,.|]*[ _/;,.|]*")
"""A part of a name that is not broken."""
NUMBER = re.compile(r"[-+<]?\d[\d.,]*( \S{1,3})?")
Cell = str | int | float | None


def format_table(
    head: Sequence[str],
    rows: Sequence[Sequence[Cell]],
    indent: str = "",
    drop: Sequence[str] = (),
) -> str:
    """Format a table with wrapped texts, or its rows one below the other.

    `drop` names columns to omit for room, the first one first. Rows are lists of their
    cells if the terminal is too narrow for all columns side by side.
    """
    is_right = [_is_numeric(rows, index) for index in range(len(head))]
    cells = [list(head)]
    for row in rows:
        cells.append([format_number(cell) for cell in row])
    room = _columns() - len(indent) - 2 * (len(head) - 1)
    natural = [max(map(len, column)) for column in zip(*cells, strict=True)]
    widths = _shrink(cells, is_right, room, WORD)
    for name in drop:
        # Bars, which have no name, are worth less than texts in one line.
        lacks_room = sum(widths if name else natural) > room
        if lacks_room and name in head:
            index = head.index(name)
            rest = [_without(row, index) for row in rows]
            return format_table(_without(head, index), rest, indent, drop)
    if sum(widths) > room:
        widths = _shrink(cells, is_right, room, PIECE)
    first, *others = cells
    if sum(widths) > room and others:
        return "\n\n".join(_stacked(first, row, indent) for row in others)
    lines = _wrapped_line(first, widths, is_right)
    lines.append("  ".join("─" * width for width in widths))
    for row_cells in others:
        lines += _wrapped_line(row_cells, widths, is_right)
    return "\n".join(f"{indent}{line}".rstrip() for line in lines)


def _stacked(head: Sequence[str], cells: Sequence[str], indent: str) -> str:
    """Format a row as pairs; bars, which have no name, are omitted."""
    pairs: list[tuple[str, Cell]] = []
    for name, cell in zip(head, cells, strict=True):
        if name or cell.strip("█"):
            pairs.append((name, cell))
    return format_pairs(pairs, indent)


def _is_numeric(rows: Sequence[Sequence[Cell]], index: int) -> bool:
    """Return whether a column has a number, or the table has no rows."""
    return not rows or any(isinstance(row[index], int | float) for row in rows)


_Item = TypeVar("_Item")


def _without(row: Sequence[_Item], index: int) -> list[_Item]:
    return [*row[:index], *row[index + 1 :]]


def _shrink(
    cells: Sequence[Sequence[str]],
    is_right: Sequence[bool],
    room: int,
    parts: re.Pattern[str],
) -> list[int]:
    """Return widths of columns, of at most `room` unless a part of a text would break.

    The widest column that can be narrower loses a character at a time; numbers are
    never broken.
    """
    widths: list[int] = []
    least: list[int] = []
    for column, right in zip(zip(*cells, strict=True), is_right, strict=True):
        width = max(map(len, column))
        widths.append(width)
        if not right:
            width = max(_least_width(text, parts) for text in column)
        least.append(width)
    while sum(widths) > room:
        wide = [index for index, width in enumerate(widths) if width > least[index]]
        if not wide:
            break
        widest = max(wide, key=lambda index: widths[index])
        widths[widest] -= 1
    return widths


def _least_width(text: str, parts: re.Pattern[str]) -> int:
    """Return the width of a text's longest part, at most `MAX_PIECE` for no number."""
    if NUMBER.fullmatch(text.strip()):
        return len(text)
    return min(max(len(part.rstrip()) for part in parts.findall(text)), MAX_PIECE)


def _columns() -> int:
    return max(MIN_COLUMNS, shutil.get_terminal_size((COLUMNS_IF_PIPED, 24)).columns)


def _wrapped_line(
    texts: Sequence[str], widths: Sequence[int], is_right: Sequence[bool]
) -> list[str]:
    """Return the lines of a row, with its texts wrapped and aligned in columns."""
    columns = [_wrap(text, width) for text, width in zip(texts, widths, strict=True)]
    lines: list[str] = []
    for parts in zip_longest(*columns, fillvalue=""):
        aligned: list[str] = []
        for part, width, right in zip(parts, widths, is_right, strict=True):
            aligned.append(part.rjust(width) if right else part.ljust(width))
        lines.append("  ".join(aligned))
    return lines


def _wrap(text: str, width: int) -> list[str]:
    """Break a text after spaces, and a longer word after the separators of names."""
    if len(text) <= width:
        return [text]
    pieces: list[str] = []
    for word in WORD.findall(text):
        if len(word.rstrip()) > width:
            pieces += PIECE.findall(word)
        else:
            pieces.append(word)
    lines = [""]
    for piece in pieces:
        if len(f"{lines[-1]}{piece}".rstrip()) > width and lines[-1]:
            lines.append("")
        lines[-1] += piece
        while len(lines[-1].rstrip()) > width:
            lines[-1:] = [lines[-1][:width], lines[-1][width:]]
    return lines


def format_number(value: Cell) -> str:
    """Format a number with digits in groups of three and two decimals; None is a dash.

    A text is kept, in one line.
    """
    match value:
        case None:
            return "–"
        case int():
            return f"{value:,}"
        case float():
            return f"{value:.2f}"
        case _:
            # A name must not look like another row.
            return value.replace("\n", "\\n")


def format_pairs(pairs: Sequence[tuple[str, Cell]], indent: str = "") -> str:
    """Format names and values in two columns, or values below names for room."""
    width = max((len(name) for name, _ in pairs), default=0)
    room = _columns() - len(indent) - width - 2
    is_below = room < MIN_VALUE_COLUMNS and any(
        len(format_number(value)) > room for _, value in pairs
    )
    if is_below:
        width, room = 0, max(room + width, 1)
    lines: list[str] = []
    for name, value in pairs:
        parts = textwrap.wrap(
            format_number(value), room, break_long_words=False, break_on_hyphens=False
        )
        if is_below:
            lines.append(name)
        heads = ["" if is_below else name] + [""] * (len(parts) - 1)
        for head, part in zip(heads, parts or [""], strict=True):
            lines.append(f"{head.ljust(width)}  {part}")
    return "\n".join(f"{indent}{line}".rstrip() for line in lines)
