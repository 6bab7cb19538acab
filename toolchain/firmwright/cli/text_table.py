"""Plain-text tables and numbers for terminals and logs."""

from collections.abc import Sequence

Cell = str | int | float | None


def format_table(head: Sequence[str], rows: Sequence[Sequence[Cell]], indent: str = "") -> str:
    """Format columns under a heading; numeric columns are right-aligned."""
    numeric = [
        any(isinstance(row[i], int | float) for row in rows) or not rows for i in range(len(head))
    ]
    cells = [list(head), *([format_number(cell) for cell in row] for row in rows)]
    widths = [max(len(line[i]) for line in cells) for i in range(len(head))]
    lines = [_line(line, widths, numeric) for line in cells]
    rule = "  ".join("─" * width for width in widths)
    return "\n".join(f"{indent}{line}".rstrip() for line in (lines[0], rule, *lines[1:]))


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
    return "\n".join(
        f"{indent}{name.ljust(width)}  {format_number(value)}".rstrip() for name, value in pairs
    )


def format_shape(shape: Sequence[int]) -> str:
    return "x".join(map(str, shape)) or "scalar"
