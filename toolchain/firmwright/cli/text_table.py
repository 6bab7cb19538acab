"""Plain-text tables and numbers for terminals and logs, in 80 columns or the terminal's width."""

import re
import shutil
import textwrap
from collections.abc import Sequence
from itertools import chain, zip_longest

MIN_COLUMNS = 80
MAX_PIECE = 24
WORD = re.compile(r"[^ ]*[ ]*")
PIECE = re.compile(r"[^ _/;,.|]*[ _/;,.|]*")
"""A part of a name that is not broken."""
NUMBER = re.compile(r"[-+<]?\d[\d.,]*( \S{1,3})?")
Cell = str | int | float | None


def format_table(
    head: Sequence[str], rows: Sequence[Sequence[Cell]], indent: str = "", drop: Sequence[str] = ()
) -> str:
    """Format right-aligned numbers and wrapped texts; `drop` names columns to omit for room."""
    numeric = [
        any(isinstance(row[i], int | float) for row in rows) or not rows for i in range(len(head))
    ]
    cells = [list(head), *([format_number(cell) for cell in row] for row in rows)]
    room = _columns() - len(indent) - 2 * (len(head) - 1)
    widths = _shrink(cells, numeric, room, WORD)
    if sum(widths) > room:
        dropped = next((head.index(name) for name in drop if name in head), None)
        if dropped is not None:
            columns_left = [[c for i, c in enumerate(row) if i != dropped] for row in (head, *rows)]
            return format_table(
                [str(name) for name in columns_left[0]], columns_left[1:], indent, drop
            )
        widths = _shrink(cells, numeric, room, PIECE)
    wrapped = [_wrapped_line(line, widths, numeric) for line in cells]
    rule = "  ".join("─" * width for width in widths)
    lines = [*wrapped[0], rule, *(line for row in wrapped[1:] for line in row)]
    return "\n".join(f"{indent}{line}".rstrip() for line in lines)


def _shrink(
    cells: Sequence[Sequence[str]], numeric: Sequence[bool], room: int, parts: re.Pattern[str]
) -> list[int]:
    """Return widths of columns, of at most `room` if no part of a text has to be broken."""
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    least = [
        width if right else max(_least_width(text, parts) for text in column)
        for column, width, right in zip(zip(*cells, strict=True), widths, numeric, strict=True)
    ]
    while sum(widths) > room:
        wide = [i for i, width in enumerate(widths) if width > least[i]]
        if not wide:
            break
        widths[max(wide, key=lambda i: widths[i])] -= 1
    return widths


def _least_width(text: str, parts: re.Pattern[str]) -> int:
    if NUMBER.fullmatch(text.strip()):
        return len(text)
    return min(max(len(part.rstrip()) for part in parts.findall(text)), MAX_PIECE)


def _columns() -> int:
    return max(MIN_COLUMNS, shutil.get_terminal_size((MIN_COLUMNS, 24)).columns)


def _wrapped_line(
    words: Sequence[str], widths: Sequence[int], numeric: Sequence[bool]
) -> list[str]:
    columns = [_wrap(word, width) for word, width in zip(words, widths, strict=True)]
    return [
        "  ".join(
            word.rjust(width) if right else word.ljust(width)
            for word, width, right in zip(line, widths, numeric, strict=True)
        )
        for line in zip_longest(*columns, fillvalue="")
    ]


def _wrap(text: str, width: int) -> list[str]:
    """Break a text after spaces, and a longer word after the separators of names."""
    lines = [""]
    words = WORD.findall(text) if len(text) > width else [text]
    pieces = (PIECE.findall(w) if len(w.rstrip()) > width else [w] for w in words)
    for piece in chain.from_iterable(pieces):
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
            return value.replace("\n", "\\n")  # a name must not look like another row


def format_pairs(pairs: Sequence[tuple[str, Cell]]) -> str:
    """Format names and values in two columns."""
    width = max((len(name) for name, _ in pairs), default=0)
    room = _columns() - width - 2
    lines: list[str] = []
    for name, value in pairs:
        parts = textwrap.wrap(
            format_number(value), room, break_long_words=False, break_on_hyphens=False
        )
        heads = [name.ljust(width), *([" " * width] * (len(parts) - 1))]
        lines += [f"{h}  {part}".rstrip() for h, part in zip(heads, parts or [""], strict=True)]
    return "\n".join(lines)


def format_shape(shape: Sequence[int]) -> str:
    return "x".join(map(str, shape)) or "scalar"
