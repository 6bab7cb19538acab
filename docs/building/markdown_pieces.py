"""Markdown elements of generated pages."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table; cells may contain anything except newlines."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(map(cell, line)) + " |" for line in lines) + "\n"


def cell(text: str) -> str:
    """Escape text for a cell."""
    return re.sub(r"(?<!\\)\|", "\\|", " ".join(text.split()))


def fence(language: str, text: str) -> str:
    """Return a code block."""
    return f"```{language}\n{text.strip(chr(10))}\n```\n"


def page(title: str, source: str, *parts: str) -> str:
    """Return a generated page with a note about its source."""
    said = f"*Made from {source} when the site is built.*"
    return (
        "\n\n".join((f"# {title}", said, *(part.strip("\n") for part in parts))) + "\n"
    )
