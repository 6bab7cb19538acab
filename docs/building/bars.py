"""Draw groups of horizontal bars as SVG: one group per model, one bar per system.

The output is deterministic. Lengths are relative to the largest value of their group,
because models differ by orders of magnitude.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

WIDTH, NAMES, VALUES = 860, 180, 150
BAR, GAP, HEAD = 15, 16, 64
LETTER = 6.4
"""Width of a character of 12 px text, roughly."""
COLOURS: Final = (
    "#3b6fb6",
    "#7aa6d8",
    "#a9c7e8",
    "#e0a458",
    "#b8b39a",
    "#b79ad0",
    "#d98880",
)


@dataclass(frozen=True, slots=True)
class Bar:
    """One system's value; `kind` is its position in the legend."""

    kind: int
    value: float
    label: str


@dataclass(frozen=True, slots=True)
class Group:
    """The bars of one model."""

    name: str
    bars: tuple[Bar, ...]


def draw(title: str, kinds: Sequence[str], groups: Sequence[Group]) -> str:
    """Return the SVG text."""
    height = HEAD + sum(BAR * len(group.bars) + GAP for group in groups)
    lines = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}"'
            f' width="{WIDTH}" height="{height}" font-family="system-ui, sans-serif"'
            f' font-size="12" fill="#24292f" role="img" aria-label="{escape(title)}">'
        ),
        '<rect width="100%" height="100%" rx="6" fill="#ffffff"/>',
        f'<text x="16" y="26" font-size="15" font-weight="600">{escape(title)}</text>',
        *_legend(kinds),
    ]
    top = HEAD
    for group in groups:
        lines += _group(group, top)
        top += BAR * len(group.bars) + GAP
    return "\n".join([*lines, "</svg>"]) + "\n"


def _legend(kinds: Sequence[str]) -> list[str]:
    lines, x = [], 16.0
    for number, name in enumerate(kinds):
        lines.append(
            f'<rect x="{x:.1f}" y="38" width="11" height="11"'
            f' fill="{COLOURS[number]}"/>'
        )
        lines.append(f'<text x="{x + 16:.1f}" y="48">{escape(name)}</text>')
        x += 34 + LETTER * len(name)
    return lines


def _group(group: Group, top: int) -> list[str]:
    largest = max(bar.value for bar in group.bars)
    middle = top + BAR * len(group.bars) / 2 + 4
    lines = [
        f'<text x="{NAMES - 10}" y="{middle:.1f}"'
        f' text-anchor="end">{escape(group.name)}</text>'
    ]
    for number, bar in enumerate(group.bars):
        y, length = top + BAR * number, (WIDTH - NAMES - VALUES) * bar.value / largest
        lines.append(
            f'<rect x="{NAMES}" y="{y + 1}" width="{max(length, 1):.1f}"'
            f' height="{BAR - 2}"'
            f' fill="{COLOURS[bar.kind]}"><title>{escape(bar.label)}</title></rect>'
        )
        lines.append(
            f'<text x="{NAMES + length + 6:.1f}" y="{y + 12}" font-size="11">'
            f"{escape(bar.label)}</text>"
        )
    return lines
