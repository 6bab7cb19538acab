"""Plain-text tables and numbers for terminals and logs, in 80 columns or the terminal's width."""

import re
import shutil
import textwrap
from collections.abc import Sequence
from itertools import zip_longest

MIN_COLUMNS = 80
MAX_PIECE = 24
PIECE = re.compile(r"[^ _/;,.|]*[ _/;,.|]*")
"""A part of a name or text that is not broken."""
Cell = str | int | float | None


def format_table(head: Sequence[str], rows: Sequence[Sequence[Cell]], indent: str = "") -> str:
    """Format columns under a heading; numeric columns are right-aligned, wide texts wrapped."""
    numeric = [
        any(isinstance(row[i], int | float) for row in rows) or not rows for i in range(len(head))
    ]
    cells = [list(head), *([format_number(cell) for cell in row] for row in rows)]
    widths = [max(len(line[i]) for line in cells) for i in range(len(head))]
    least = [
        max(len(piece) for line in cells for piece in PIECE.findall(line[i]))
        for i in range(len(head))
    ]
    room = _columns() - len(indent) - 2 * (len(head) - 1)
    while sum(widths) > room:
        wide = [
            i
            for i, width in enumerate(widths)
            if not numeric[i] and width > min(least[i], MAX_PIECE)
        ]
        if not wide:
            break
        widths[max(wide, key=lambda i: widths[i])] -= 1
    wrapped = [_wrapped_line(line, widths, numeric) for line in cells]
    rule = "  ".join("─" * width for width in widths)
    lines = [*wrapped[0], rule, *(line for row in wrapped[1:] for line in row)]
    return "\n".join(f"{indent}{line}".rstrip() for line in lines)


def _columns() -> int:
    return max(MIN_COLUMNS, shutil.get_terminal_size((MIN_COLUMNS, 24)).columns)


def _wrapped_line(
    words: Sequence[str], widths: Sequence[int], numeric: Sequence[bool]
) -> list[str]:
    columns = [_wrap(word, width) for word, width in zip(words, widths, strict=True)]
    return [_line(line, widths, numeric) for line in zip_longest(*columns, fillvalue="")]


def _wrap(text: str, width: int) -> list[str]:
    """Break a text after spaces and the separators of names."""
    lines = [""]
    for piece in PIECE.findall(text) if len(text) > width else [text]:
        if len(f"{lines[-1]}{piece}".rstrip()) > width and lines[-1]:
            lines.append("")
        lines[-1] += piece
        while len(lines[-1].rstrip()) > width:
            lines[-1:] = [lines[-1][:width], lines[-1][width:]]
    return lines


def _line(words: Sequence[str], widths: Sequence[int], numeric: Sequence[bool]) -> str:
    return "  ".join(
        word.rjust(width) if right else word.ljust(width)
        for word, width, right in zip(words, widths, numeric, strict=True)
    )


def format_number(value: Cell) -> str:
    """Format a number with digits in groups of three and two decimals; None is a dash."""
    match value:
        case None:
            return "–"
        case int():
            return f"{value:,}"
        case float():
            return f"{value:.2f}"
        case _:
            return value


def format_pairs(pairs: Sequence[tuple[str, Cell]], indent: str = "") -> str:
    """Format names and values in two columns."""
    width = max((len(name) for name, _ in pairs), default=0)
    room = _columns() - len(indent) - width - 2
    lines: list[str] = []
    for name, value in pairs:
        parts = textwrap.wrap(
            format_number(value), room, break_long_words=False, break_on_hyphens=False
        )
        heads = [name.ljust(width), *([" " * width] * (len(parts) - 1))]
        lines += [
            f"{indent}{h}  {part}".rstrip() for h, part in zip(heads, parts or [""], strict=True)
        ]
    return "\n".join(lines)


def format_shape(shape: Sequence[int]) -> str:
    return "x".join(map(str, shape)) or "scalar"
