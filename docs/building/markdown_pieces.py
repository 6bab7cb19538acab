"""Pieces of Markdown that the generated pages are made of."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; cells may hold anything but newlines."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(map(cell, line)) + " |" for line in lines) + "\n"


def cell(text: str) -> str:
    """Text that stays within its cell."""
    return re.sub(r"(?<!\\)\|", "\\|", " ".join(text.split()))


def fence(language: str, text: str) -> str:
    """A block of code."""
    return f"```{language}\n{text.strip(chr(10))}\n```\n"


def page(title: str, source: str, *parts: str) -> str:
    """A generated page, which says from what it was made."""
    said = f"*Made from {source} when the site is built.*"
    return "\n\n".join((f"# {title}", said, *(part.strip("\n") for part in parts))) + "\n"
